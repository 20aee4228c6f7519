//! Implements Karmada's resource detector: policies claim templates, and each claimed template gets
//! a binding.
//!
//! The detector watches templates, policies and the override policies that a policy may depend on.
//! It writes the claim on templates and bindings, and the bindings themselves, including their
//! clusters where the placement can be decided at once. Where the API server of the templates runs
//! workloads itself, the detector refuses them and sets a condition on their bindings. It writes
//! only through the control plane's API.
//!
//! Entry points: [`ResourceDetector`]; the other exports are its decision functions, which the
//! simulation of policies runs too.

mod applied_policy;
mod apply_policy;
mod binding_deletion;
mod controller;
mod deleted_template;
mod desired_binding;
mod event_handler;
mod host_workloads;
mod interpret_template;
mod late_policies;
mod metrics;
mod namespace_gate;
mod options;
mod policy_claim;
mod policy_matching;
mod preemption;
mod recent_matches;
mod reconcile_policy;
mod replica_preference;
mod template_removal;
mod type_config_status;
mod waiting_objects;

pub use controller::ResourceDetector;
pub use desired_binding::DesiredBinding;
pub use event_handler::is_created_by_every_cluster;
pub use interpret_template::{
    InterpretError, InterpretedReplicas, InterpretedTemplate, interpret_replicas,
};
pub use options::{DetectorOptions, InlineSchedulingOptions};
pub use policy_claim::PolicyClaim;
pub use policy_matching::{ParsedPolicy, rank_matching};
pub use preemption::{ClaimHolder, newly_preempting_policies, preemptable_holder};
