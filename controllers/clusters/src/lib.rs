//! The life of member clusters in the control plane: their execution spaces and
//! taints, what they report about themselves, how they come and how they go, and what
//! becomes of their copies when they or these fail.
//!
//! Cluster + member's answers ──► decision (pure) ──► Cluster status, taints, finalizer
//! Cluster, binding, policy ──► decision (pure) ──► evictions in the binding
//!
//! Invariants: a member that does not answer delays no other; what is not ours in
//! a Cluster (foreign taints, conditions, remedies) is never touched; a Cluster
//! goes only after its execution space and every placement on it. No credential
//! is printed.
//!
//! Entry points: [`start`], [`join`], [`unjoin`].

mod bindings;
mod cluster;
mod condition;
mod failover;
mod join;
#[cfg(test)]
mod lab;
mod start;
mod status;
mod taints;

pub use failover::{Options as FailoverOptions, PurgeMode};
pub use join::{JoinError, JoinSpec, Joined, Progress, UnjoinError, UnjoinSpec, join, unjoin};
pub use start::{Deps, Options, start};

static NAMESPACES: machinery::Gvr = machinery::Gvr::constant("", "v1", "namespaces");
