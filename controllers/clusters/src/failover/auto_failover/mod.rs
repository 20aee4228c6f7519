//! Automatic failover, which Karmada does not have: with the annotation
//! `flotilla.io/failover: auto` on a policy, workloads on a cluster that stays not Ready
//! are moved to others, independent of feature gates.
//!
//! Replacements come first: the old workload stays, under an eviction task with
//! `suppressDeletion` that the graceful eviction controller leaves alone, until they are
//! healthy. If the cluster is Ready again before that, the previous targets are restored.

mod controller;
mod reconcile;

pub(super) use controller::AutoFailoverController;

#[cfg(test)]
mod tests;
