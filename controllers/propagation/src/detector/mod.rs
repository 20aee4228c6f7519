//! Implements Karmada's resource detector: policies claim templates, and each claimed template gets
//! a binding.
//!
//! The detector watches templates, policies and the override policies that a policy may depend on.
//! It writes the claim on templates and bindings, and the bindings themselves, including their
//! clusters where the placement can be decided at once. Where the API server of the templates runs
//! workloads itself, the detector refuses them and sets a condition on their bindings. It writes
//! only through the control plane's API.

mod applied_policies;
mod apply;
pub(crate) mod claim;
pub(crate) mod desired;
pub(crate) mod findings;
mod gone;
mod hear;
pub(crate) mod matching;
mod policies;
pub(crate) mod preempt;
mod refuse;
mod shell;
mod waiting;

pub(crate) use shell::Detector;
