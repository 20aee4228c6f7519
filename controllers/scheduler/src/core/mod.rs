//! The scheduling algorithm: which clusters, and how many replicas on each. Pure.
//!
//! [`ScheduleRequest`] + [`SchedulingContext`] ──filter──► feasible ──score, select──► chosen ──assign──► target clusters
//!
//! A [`SchedulingDecision`] keeps the result of every step, so that a [`DecisionTrace`]
//! can be built on demand and costs nothing otherwise.
//!
//! Source of the rules: Karmada's `pkg/scheduler/core` and `framework/plugins`.

mod accurate_estimates;
mod assignment;
mod assignment_strategy;
mod candidate;
mod capacity_estimator;
mod decision;
mod estimate_source;
mod failure;
mod filter;
mod replica_preference_planner;
mod request;
pub mod reservations;
mod resource_models;
mod resource_request;
mod scheduling_settings;
mod scheduling_step;
mod select;
mod snapshot;
mod trace;
pub mod webster;
pub mod workload_affinity;

pub use accurate_estimates::{AccurateEstimate, AccurateEstimates};
pub use assignment::AssignmentRule;
pub use assignment_strategy::AssignmentStrategy;
pub(crate) use assignment_strategy::{is_duplicated, schedules_component_sets};
pub(crate) use candidate::{ClusterCandidate, CurrentTargets, compare_candidates};
pub(crate) use capacity_estimator::is_estimated;
pub use decision::{SchedulingDecision, make_decision, schedule};
pub use estimate_source::EstimateSource;
pub use failure::SchedulingFailure;
pub use request::{ScheduleRequest, SchedulingContext};
pub use resource_request::{AssumedWorkload, ReplicaResourceRequest, ResourceName};
pub use scheduling_settings::{
    ExtensionPoint, SchedulerPluginName, SchedulerPluginSet, SchedulingSettings, UnknownPluginError,
};
pub use scheduling_step::{FilterCounts, SchedulingStep, StepOrPluginCompletion};
pub(crate) use snapshot::ApiKindHash;
pub use snapshot::{ClusterInfo, ClusterSnapshot};
pub use trace::{ClusterTrace, DecisionTrace, RegionTrace, RejectionTrace};

#[cfg(test)]
pub(crate) mod tests;
