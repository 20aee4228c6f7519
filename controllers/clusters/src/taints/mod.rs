//! The ClusterTaintPolicy controller: taints that clusters get and lose by their
//! conditions.
//!
//! Karmada: `pkg/controllers/taint`, behind the feature gate `Failover`.

mod decide;
mod shell;

pub(crate) use shell::Controller;

#[cfg(test)]
mod tests;
