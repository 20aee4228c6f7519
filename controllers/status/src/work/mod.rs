//! Reflects objects in members to the status of their Works (Karmada's
//! `pkg/controllers/status/work_status_controller.go`).

pub(crate) mod controller;
mod reflect;
