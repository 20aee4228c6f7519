//! Where the number of available replicas of a cluster comes from.

use serde::Serialize;

/// The source of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EstimateSource {
    /// Nothing to estimate.
    Unbounded,
    /// The cluster reports no resource summary.
    NoSummary,
    /// The number of free pods.
    Pods,
    /// The totals of the resource summary.
    Summary,
    /// The nodes by resource model grade.
    ResourceModels,
    /// The individual nodes.
    Nodes,
    /// A ResourceQuota in the cluster.
    ResourceQuota,
    /// An estimator running for the cluster.
    Estimator,
}
