//! The subresources that need more than the registry: those of Clusters, which lead to members, and
//! `decision` of bindings, the scheduler's explanation.

mod cluster_proxy;
mod scheduling_decision;

pub use cluster_proxy::{ClusterConnectorContext, cluster_connectors};
pub use scheduling_decision::decision_getters;
