//! Staged rollouts: lets a change of a template go through its clusters in the stages of a
//! RolloutPolicy, held by the health that members report.
//!
//! template + override policies ──[`revision`]──► ControllerRevision
//! RolloutPolicy + Works + Clusters + clock ──[`decision`]──► status of the Rollout
//! status of the Rollout ──[`query_evaluator`]──► queries to members or Prometheus ──► [`decision`]
//! status of the Rollout ──[`gate_jobs`]──► Jobs in the clusters of a stage ──► [`decision`]
//! status of the Rollout ──[`RevisionResolver`]──► revision of each Work, which the binding controller makes
//!
//! Invariants: the decision is a pure function, and each step is one write of a status, guarded by
//! the version that was read; a template without a policy costs a lookup.
//!
//! Entry points: [`RevisionResolver`], [`RolloutController`], and [`preview_rollout`] for commands.

mod cluster_names;
mod controller;
mod decision;
mod gate_jobs;
mod hashed_name;
mod metrics;
mod observation;
mod observed_works;
mod orphans;
mod policies;
mod preview;
mod prometheus;
mod query_evaluator;
mod query_servers;
mod reported_replicas;
mod resolver;
mod revision;
mod target_observer;
mod unstaging;
mod unusable_revisions;

pub use controller::{RolloutController, RolloutControllerOptions};
pub use policies::{RolloutPolicies, policy_name, selected_policy_name};
pub use preview::{RolloutPreview, RolloutPreviewInput, preview_rollout};
pub use query_servers::QueryServers;
pub use resolver::{RevisionResolver, StagedRevisions, StagedTemplate};
pub use revision::{
    CONTROLLER_REVISIONS, TemplateRevision, is_outside_revisions, revision_content,
    revision_number, verified_content,
};
