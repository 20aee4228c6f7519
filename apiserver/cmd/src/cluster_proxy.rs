//! The connectors for the subresources `clusters/proxy`, which leads to member clusters, and
//! `clusters/attach`, by which agents of clusters in pull mode open the way there.

use client::TaskGroup;
use flotilla_http::{
    AGENT_TUNNEL, AgentTunnelEndpoint, CLUSTER_PROXY, ClusterProxy, SubresourceConnectors,
};
use members::ClusterProxyBackends;

/// The connectors of Clusters. Their connections belong to the given tasks.
pub(crate) fn cluster_connectors(
    gateways: ClusterProxyBackends,
    tasks: &TaskGroup,
    metrics: &flotilla_metrics::MetricsRegistry,
) -> SubresourceConnectors {
    let tunnels = AgentTunnelEndpoint::new(gateways.clone(), tasks);
    let proxy = ClusterProxy::new(gateways, tasks, metrics);
    let key = |(group, resource, subresource): (&str, &str, &str)| {
        (group.into(), resource.into(), subresource.into())
    };
    SubresourceConnectors::from([
        (key(CLUSTER_PROXY), proxy as _),
        (key(AGENT_TUNNEL), tunnels as _),
    ])
}
