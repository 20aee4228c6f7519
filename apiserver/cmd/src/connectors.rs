//! The connectors for subresources that lead out of the server: `clusters/proxy` of a
//! control plane, and the container subresources of a simulated cluster. Their
//! connections belong to the given tasks.

use std::sync::Arc;

use client::{Api, TaskGroup};
use flotilla_http::{CLUSTER_PROXY, ClusterProxy, SubresourceConnectors};
use machinery::time::Clock;
use members::ClusterProxyBackends;

use crate::containers;

/// The connector for `clusters/proxy`, to member clusters.
pub(crate) fn cluster_connectors(
    host: &Arc<dyn Api>,
    tasks: &TaskGroup,
    metrics: &flotilla_metrics::MetricsRegistry,
) -> SubresourceConnectors {
    let gateways = ClusterProxyBackends::start(Arc::clone(host), tasks);
    let proxy = ClusterProxy::new(gateways, tasks, metrics);
    let (group, resource, subresource) = CLUSTER_PROXY;
    let key = (group.into(), resource.into(), subresource.into());
    SubresourceConnectors::from([(key, proxy as _)])
}

/// The connectors to the containers of a simulated cluster.
pub(crate) fn container_connectors(
    api: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
    tasks: &TaskGroup,
) -> SubresourceConnectors {
    containers::connectors(api, clock, tasks)
}
