//! The connector for the subresource `clusters/proxy`, which leads to member clusters.

use std::sync::Arc;

use client::{Api, TaskGroup};
use flotilla_http::{CLUSTER_PROXY, ClusterProxy, SubresourceConnectors};
use members::ClusterProxyBackends;

/// The connector for `clusters/proxy`. Its connections belong to the given tasks.
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
