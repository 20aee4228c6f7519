//! Schedules bindings: decides which clusters a binding's resource goes to.
//!
//! binding + clusters ──► [`core::schedule`] (pure) ──► spec.clusters, Scheduled condition
//!
//! Invariants: [`core`] does no I/O and reads no clock. The [`Scheduler`] writes a result
//! only where it differs from the binding.
//!
//! Entry points: [`core::schedule`], [`schedule_inline`], [`Scheduler`],
//! [`SchedulerClusterCache`], [`DecisionExplanationCache`], [`ReplicaEstimator`], [`explain`] and
//! [`SchedulingSimulation`].

mod assume_cache;
mod cluster_cache;
mod controller;
pub mod core;
mod decision_explanation_cache;
mod explain;
mod inline_scheduling;
mod metrics;
mod reconcile;
mod replica_estimator;
mod simulation;

pub use cluster_cache::SchedulerClusterCache;
pub use controller::{Scheduler, SchedulerOptions, encode_placement};
pub use decision_explanation_cache::DecisionExplanationCache;
pub use explain::{DecisionExplanation, FailedAffinityTermTrace, affinity_peers, explain};
pub use inline_scheduling::{DeferredToSchedulerError, schedule_inline};
pub use reconcile::{DEFAULT_SCHEDULER, SchedulingSkipReason};
pub use replica_estimator::{
    ClusterToEstimate, CurrentEstimator, EstimateRequest, EstimateSubject, ReplicaEstimator,
};
pub use simulation::{BindingSimulationResult, SchedulingSimulation};
