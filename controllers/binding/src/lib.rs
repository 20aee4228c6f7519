//! Creates the Works of a binding: one per target cluster, with its replicas and overrides.
//!
//! [`WorkSimulation`] tells what it would write, for commands.
//!
//! The controller watches bindings, templates, override policies and Works. It creates, updates and
//! deletes Works, and removes the binding's finalizer. It writes only through the control plane's
//! API.

mod changed_override_policies;
mod controller;
mod event_filter;
mod gated_targets;
mod kept_replicas;
mod manifest;
mod metrics;
mod override_event_handler;
mod removed_bindings;
mod staged_works;
mod work_builder;
mod work_cleanup;
mod work_simulation;

pub use controller::{BindingController, BindingControllerOptions};
pub use work_simulation::{
    SimulatedBinding, SimulatedWork, WorkChange, WorkSimulation, WorkSimulationOptions,
};
