//! From the Works of a binding to its status, and in sum to its template (Karmada's
//! `pkg/controllers/status/{rb,crb}_status_controller.go`, `pkg/util/helper/workstatus.go`).

mod aggregate;
pub(crate) mod shell;

pub use shell::start_alone as start;
