//! Accurate estimators: how many replicas, or sets of components, fit on a cluster by its
//! nodes, where the scheduler otherwise knows only totals.
//!
//! request, clusters ──► [`AccurateEstimator`] ──► the cluster's own estimator (gRPC), if
//! one is deployed; else an estimate by its nodes and quotas ──► estimates
//!
//! Invariants: local estimates are pure. A slow cluster delays a caller no longer than the
//! timeout, and does not delay the estimates of other clusters. Connections exist before
//! the first request.
//!
//! Entry points: [`AccurateEstimator`], [`Options`].

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

/// The estimate if nothing limits it.
const UNBOUNDED: i64 = i32::MAX as i64;
