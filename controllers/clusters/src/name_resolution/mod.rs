//! Detects whether the names of Services are resolved in a member cluster (Karmada's
//! `pkg/servicenameresolutiondetector`).
//!
//! lookups on each node ──[`node_detector`]──► condition of the Node
//! conditions of all Nodes ──[`cluster_reporter`], of one leader──► condition of the Cluster

mod cluster_reporter;
mod node_detector;
mod options;
#[cfg(test)]
mod tests;

pub use cluster_reporter::ClusterNameResolutionReporter;
pub use node_detector::{NameLookup, NodeNameResolutionDetector};
pub use options::NameResolutionOptions;
