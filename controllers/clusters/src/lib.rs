//! The life of member clusters in the control plane: their execution spaces and
//! taints, what they report about themselves, how they come and how they go.
//!
//! Cluster + member's answers ──► decision (pure) ──► Cluster status, taints, finalizer
//!
//! Invariants: a member that does not answer delays no other; what is not ours in
//! a Cluster (foreign taints, conditions, remedies) is never touched; a Cluster
//! goes only after its execution space and every placement on it. No credential
//! is printed.
//!
//! Entry points: [`start`], [`join`], [`unjoin`].

mod cluster;
mod condition;
mod join;
#[cfg(test)]
mod lab;
mod resources;
mod start;
mod status;

pub use join::{JoinError, JoinSpec, Joined, Progress, UnjoinError, UnjoinSpec, join, unjoin};
pub use start::{Deps, Options, start};
