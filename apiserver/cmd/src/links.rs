//! What leads out of a server: from a control plane to its clusters, from a simulated
//! cluster into its containers.
//!
//! Enters: the API that knows Clusters and their secrets, or pods. Leaves: connectors,
//! whose connections and tunnels belong to the tasks given.

use std::sync::Arc;

use client::{Api, Tasks};
use flotilla_http::{CLUSTER_PROXY, ClusterProxy, Connectors};
use machinery::time::Clock;
use members::Gateways;

use crate::containers;

/// To member clusters.
pub(crate) fn to_clusters(
    host: &Arc<dyn Api>,
    tasks: &Tasks,
    metrics: &flotilla_metrics::Registry,
) -> Connectors {
    let gateways = Gateways::start(Arc::clone(host), tasks);
    let proxy = ClusterProxy::new(gateways, tasks, metrics);
    let (group, resource, subresource) = CLUSTER_PROXY;
    let key = (group.into(), resource.into(), subresource.into());
    Connectors::from([(key, proxy as _)])
}

/// Into the containers of a simulated cluster.
pub(crate) fn to_containers(
    api: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
    tasks: &Tasks,
) -> Connectors {
    containers::connectors(api, clock, tasks)
}
