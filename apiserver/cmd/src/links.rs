//! The connectors for subresources that lead out of the server: `clusters/proxy` of a
//! control plane, and the container subresources of a simulated cluster. Their
//! connections belong to the given tasks.

use std::sync::Arc;

use client::{Api, Tasks};
use flotilla_http::{CLUSTER_PROXY, ClusterProxy, Connectors};
use machinery::time::Clock;
use members::Gateways;

use crate::containers;

/// The connector for `clusters/proxy`, to member clusters.
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

/// The connectors to the containers of a simulated cluster.
pub(crate) fn to_containers(
    api: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
    tasks: &Tasks,
) -> Connectors {
    containers::connectors(api, clock, tasks)
}
