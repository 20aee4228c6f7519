//! A cluster without machines: nodes that exist on paper, a kubelet that starts
//! nothing and says it runs, and the workload controllers of a
//! kube-controller-manager as far as status needs them.
//!
//! workloads ──► [`plan`]ned pods ──► nodes with room ──► Running, Ready ──► status
//!
//! Invariants: everything goes through `client::Api`, so that it can be attached
//! to any API server. Decisions are pure functions of what is observed. Nothing is
//! done while nothing changes: no heartbeats, no resync.
//!
//! Entry points: [`Hollow`].

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
