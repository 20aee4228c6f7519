//! ClusterTaintPolicy: taints that clusters get and lose by their conditions.
//!
//! Karmada: `pkg/controllers/taint`, behind the gate `Failover`.

mod decide;
mod shell;

pub(crate) use shell::Controller;

#[cfg(test)]
mod tests;
