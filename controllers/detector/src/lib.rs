//! Implements Karmada's resource detector: policies claim templates, and each claimed template gets
//! a binding.
//!
//! The detector watches templates, policies and the override policies that a policy may depend on.
//! It writes the claim on templates and bindings, and the bindings themselves, including their
//! clusters where the placement can be decided at once. Where the API server of the templates runs
//! workloads itself, the detector refuses them and sets a condition on their bindings. It writes
//! only through the control plane's API.

mod applied_policies;
mod apply_policy;
mod controller;
mod deleted_template;
pub(crate) mod desired_binding;
mod event_handler;
mod host_workloads;
pub(crate) mod interpret_template;
pub(crate) mod policy_claim;
pub(crate) mod policy_matching;
pub(crate) mod preemption;
mod reconcile_policy;
mod waiting_objects;

pub(crate) use controller::ResourceDetector;
