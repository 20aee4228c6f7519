//! The detector: policies claim templates, and claimed templates have bindings.
//!
//! Enters: templates, policies, override policies (which a policy may wait for).
//! Leaves: claims on templates and bindings; bindings, with their clusters where the
//! placement can be decided at once. Where the server of the templates runs workloads
//! itself, these are refused, and bindings say so. Writes through the control plane's API only.

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
