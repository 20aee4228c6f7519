//! Aggregates the status of a binding's Works to the binding and its template (Karmada's
//! `pkg/controllers/status/{rb,crb}_status_controller.go`, `pkg/util/helper/workstatus.go`).

mod aggregate;
pub(crate) mod controller;
mod event_filter;
mod staged_status;
mod template_aggregation;
