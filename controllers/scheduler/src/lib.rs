//! Schedules bindings: decides which clusters a binding's resource goes to.
//!
//! binding + clusters ──► [`core::schedule`] (pure) ──► spec.clusters, Scheduled condition
//!
//! Invariants: [`core`] does no I/O and reads no clock. The [`Scheduler`] writes a result
//! only where it differs from the binding.
//!
//! Entry points: [`core::schedule`], [`schedule_inline`], [`Scheduler`],
//! [`SchedulerClusterCache`], [`DecisionCache`], [`ReplicaEstimator`], [`explain`] and
//! [`SchedulingSimulation`].

mod assume_cache;
mod cluster_cache;
mod controller;
pub mod core;
mod decision_cache;
mod explain;
mod metrics;
mod reconcile;
mod replica_estimator;
mod simulation;

pub use cluster_cache::SchedulerClusterCache;
pub use controller::{Scheduler, SchedulerOptions, encode_placement};
pub use decision_cache::DecisionCache;
pub use explain::{AffinityTermTrace, DecisionExplanation, affinity_peers, explain};
pub use metrics::{DeferredToScheduler, schedule_inline};
pub use reconcile::SchedulingSkipReason;
pub use replica_estimator::{EstimateRequest, EstimateSubject, EstimatedCluster, ReplicaEstimator};
pub use simulation::{SchedulingSimulation, SimulatedPlacement};
