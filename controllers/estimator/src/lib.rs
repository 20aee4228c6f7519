//! Accurate estimators: how many replicas, or sets of components, a cluster has room
//! for by its nodes, where the scheduler otherwise knows only sums.
//!
//! question, clusters ──► [`Estimator`] ──► an estimator of the cluster's own (gRPC), where
//! one was deployed; else its nodes and quotas, counted here ──► answers
//!
//! Invariants: estimates are pure. A cluster that is slow to answer holds nobody longer
//! than the time that is set, and no other cluster's answer. Whom to ask is known before
//! somebody asks.
//!
//! Entry points: [`Estimator`], [`Options`].

mod address;
mod ask;
mod claim;
mod figures;
mod links;
mod nodes;
mod options;
mod own;
mod quota;
mod remote;
mod tls;
mod wire;

#[cfg(test)]
mod tests;

pub use ask::Estimator;
pub use options::Options;
pub use tls::Files;

/// What stands for "no limit".
const UNBOUNDED: i64 = i32::MAX as i64;
