//! API priority and fairness: FlowSchemas divide the requests into flows of priority
//! levels, whose flows share the level's seats fairly (KEP-1040,
//! `k8s.io/apiserver/pkg/util/flowcontrol`).
//!
//! request ──► [`FlowController::classify`] ──► [`Flow`] ──► [`PriorityLevel`] (queues, seats) ──► [`ConcurrencyPermit`]
//!
//! Invariants: decisions are synchronous functions of the time, under the lock of one
//! level. A request waits in at most one queue and for at most a quarter of the server's
//! request timeout. A level that is replaced by a new configuration serves those that
//! wait in it.

mod borrowing;
mod controller;
mod dangling;
mod flow_control_metrics;
mod flow_schema;
mod priority_level;
mod queue_set;
mod shuffle_sharding;
mod work_estimate;

pub use controller::FlowController;
pub(crate) use controller::{Flow, FlowGaugeGuard, FlowRequest, SharedFlow};
pub(crate) use priority_level::ConcurrencyPermit;
