//! A hollow cluster: nodes without machines, a kubelet that reports pods as running without
//! starting them, and the workload controllers of kube-controller-manager as far as
//! statuses need them.
//!
//! workloads ──► [`workload_plan`] ──► pods on nodes with capacity ──► Running, Ready ──► status
//! Services + those pods ──[`endpoint_slices`]──► EndpointSlices
//!
//! Invariants: everything goes through `client::Api`, so that it works with any API
//! server. Decisions are pure functions of observed objects. Without changes nothing
//! happens: no heartbeats, no resync.
//!
//! Entry points: [`HollowCluster`], [`containers`], [`pod_metrics`], [`NodeUsages`].

mod apply_plan;
mod capacity;
pub mod containers;
mod controller;
mod daemon_sets;
mod deployments;
mod endpoint_slices;
mod endpoint_slices_controller;
mod jobs;
mod kubelet;
mod kubelet_controller;
mod nodes;
mod options;
mod pods;
mod replica_sets;
mod resource_metrics;
mod stateful_sets;
mod workload_plan;

#[cfg(test)]
mod tests;

pub use controller::HollowCluster;
pub use options::HollowClusterOptions;
pub use resource_metrics::{NodeUsages, pod_metrics};
