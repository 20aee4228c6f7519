//! The ClusterTaintPolicy controller: taints that clusters get and lose by their
//! conditions.
//!
//! Karmada: `pkg/controllers/taint`, behind the feature gate `Failover`.

mod controller;
mod reconcile;

pub(crate) use controller::ClusterTaintPolicyController;

#[cfg(test)]
mod tests;
