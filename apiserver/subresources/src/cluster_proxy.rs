//! The connectors for requests to member clusters: `clusters/proxy` leads to one of them,
//! `clusters/attach` is how agents of clusters in pull mode open the way there, and the search,
//! the global proxy and the fleet view answer for all.

use std::sync::Arc;

use addons::{AddonSwitches, SwitchedConnector};
use auth::RequestAuthorizer;
use client::{Api, InformerFactory, InvolvedObject, TaskGroup};
use flotilla_http::{
    AGENT_TUNNEL, AgentTunnelEndpoint, CLUSTER_PROXY, ClusterProxy, ControlPlaneBackend, FleetView,
    GLOBAL_PROXY, GlobalProxy, MemberResourceReader, MemberSearch, NamedProxies, SEARCH,
    SubresourceConnector, SubresourceConnectors, TunnelRefusalCallback,
};
use flotilla_runtime::{ControllerContext, EventRecorder};
use karmada_api::addons::Addon;
use machinery::Object;
use machinery::time::Clock;
use members::{ClusterProxyBackends, FleetCache, RemoteMemberConnector, TunnelingMemberConnector};
use registry::Registry;
use search::{FleetOptions, MemberCaches, SearchOptions};

/// The source of the events about tunnels.
const TUNNEL_COMPONENT: &str = "cluster-proxy";

/// The parts that the connectors share with the server.
pub struct ClusterConnectorContext<'a> {
    pub api: &'a Arc<dyn Api>,
    pub registry: &'a Arc<Registry>,
    pub authorizer: RequestAuthorizer,
    /// Serves what the proxies do not send to members.
    pub control_plane: Arc<dyn ControlPlaneBackend>,
    pub member_caches: &'a MemberCaches,
    pub clock: &'a Arc<dyn Clock>,
    /// The owner of the connections.
    pub tasks: &'a TaskGroup,
    pub metrics: &'a flotilla_metrics::MetricsRegistry,
    pub addons: &'a AddonSwitches,
}

/// The connectors of Clusters.
pub fn cluster_connectors(
    gateways: ClusterProxyBackends,
    context: ClusterConnectorContext<'_>,
) -> SubresourceConnectors {
    let tasks = context.tasks;
    let switches = context.addons.clone();
    let tunnels = AgentTunnelEndpoint::new(gateways.clone(), tunnel_refusals(&context), tasks);
    let control_plane = Arc::clone(&context.control_plane);
    let proxy = ClusterProxy::new(gateways.clone(), control_plane, tasks, context.metrics);
    let authorizer = context.authorizer.clone();
    let fleet_cache = start_fleet_cache(&context, &gateways);
    let reader = start_member_reader(context);
    let global = GlobalProxy::new(Arc::clone(&reader), Arc::clone(&proxy));
    let fleet = FleetView::new(
        fleet_cache,
        Arc::clone(&reader),
        Arc::clone(&proxy),
        authorizer,
    );
    let of_search = |connector: Arc<dyn SubresourceConnector>| {
        let (addon, switches) = (Addon::Search, switches.clone());
        Arc::new(SwitchedConnector {
            addon,
            switches,
            connector,
        }) as Arc<dyn SubresourceConnector>
    };
    let key = |(group, resource, subresource): (&str, &str, &str)| {
        (group.into(), resource.into(), subresource.into())
    };
    let mut connectors = SubresourceConnectors::from([
        (key(CLUSTER_PROXY), proxy as Arc<dyn SubresourceConnector>),
        (key(AGENT_TUNNEL), tunnels),
        // The fleet view is no part of the search, and is served without it.
        (
            key(GLOBAL_PROXY),
            NamedProxies::new(fleet, of_search(global)),
        ),
    ]);
    for path in SEARCH {
        let search = MemberSearch::new(Arc::clone(&reader), path.2);
        connectors.insert(key(path), of_search(search));
    }
    connectors
}

/// Records an event when somebody wants to replace the tunnel of an agent with another certificate.
fn tunnel_refusals(context: &ClusterConnectorContext<'_>) -> TunnelRefusalCallback {
    let (api, clock) = (Arc::clone(context.api), Arc::clone(context.clock));
    let recorder = EventRecorder::new(api, TUNNEL_COMPONENT, clock, context.tasks);
    Arc::new(move |cluster: &Object| {
        let about = InvolvedObject::new("cluster.karmada.io/v1alpha1", "Cluster", cluster);
        let message =
            "a second tunnel was refused: its certificate is not that of the agent's tunnel";
        recorder.warning(&about, "AgentTunnelRefused", message);
    })
}

fn controller_context(context: &ClusterConnectorContext<'_>) -> ControllerContext {
    ControllerContext {
        control_plane: Arc::clone(context.api),
        informers: InformerFactory::new(context.tasks),
        clock: Arc::clone(context.clock),
        recorder: EventRecorder::disabled(),
        tasks: context.tasks.clone(),
    }
}

/// Starts the cache of the fleet view, which is empty until somebody reads it.
fn start_fleet_cache(
    context: &ClusterConnectorContext<'_>,
    backends: &ClusterProxyBackends,
) -> Arc<dyn FleetCache> {
    let options = FleetOptions {
        connector: Arc::new(TunnelingMemberConnector {
            remote: RemoteMemberConnector::default(),
            backends: backends.clone(),
        }),
        backends: backends.clone(),
        caches: context.member_caches.clone(),
    };
    search::start_fleet(&controller_context(context), options)
}

/// Starts the cache of resources of members, with the rights of users to read it.
fn start_member_reader(context: ClusterConnectorContext<'_>) -> Arc<MemberResourceReader> {
    let controller = controller_context(&context);
    let search = SearchOptions {
        connector: Arc::new(RemoteMemberConnector::default()),
        caches: context.member_caches.clone(),
        enabled: context.addons.search_enabled(),
    };
    let cache = search::start(&controller, search);
    let registry = Arc::clone(context.registry);
    let clock = Arc::clone(context.clock);
    MemberResourceReader::new(cache, context.authorizer, registry, clock)
}
