//! A hollow cluster: nodes without machines, a kubelet that reports pods as running without
//! starting them, and the workload controllers of kube-controller-manager as far as
//! statuses need them.
//!
//! workloads ──► [`workload_plan`] ──► pods on nodes with capacity ──► Running, Ready ──► status
//!
//! Invariants: everything goes through `client::Api`, so that it works with any API
//! server. Decisions are pure functions of observed objects. Without changes nothing
//! happens: no heartbeats, no resync.
//!
//! Entry points: [`HollowCluster`].

mod act;
mod capacity;
mod daemons;
mod deployments;
mod jobs;
mod kubelet;
mod nodes;
mod plan;
mod pods;
mod replicas;
mod run;
mod stateful;
mod tend;

#[cfg(test)]
mod tests;

pub use run::{Hollow, Options};
