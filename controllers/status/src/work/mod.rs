//! Reflects objects in members to the status of their Works (Karmada's
//! `pkg/controllers/status/work_status_controller.go`).

mod reflect;
pub(crate) mod shell;

pub use shell::start_alone as start;
