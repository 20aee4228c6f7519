//! The endpoints of a standalone server that no stored object answers: a control plane leads to its
//! members, and a simulated member to its containers.

use std::sync::Arc;

use addons::AddonSwitches;
use client::TaskGroup;
use flotilla_http::{DynamicGroupProviders, OwnControlPlane, SubresourceConnectors};
use flotilla_metrics::MetricsRegistry;
use karmada_api::addons::ADDONS_NAMESPACE;
use machinery::time::Clock;
use members::ClusterProxyBackends;
use search::MemberCaches;
use simulated_member::{container_connectors, hollow_custom_metrics_providers};
use subresources::{ClusterConnectorContext, cluster_connectors};

use super::request_access::RequestAccess;
use super::resources::StandaloneResources;

pub(super) struct Endpoints {
    pub(super) connectors: SubresourceConnectors,
    pub(super) dynamic_groups: DynamicGroupProviders,
    /// Serves what the proxies do not send to members.
    pub(super) own_control_plane: Arc<OwnControlPlane>,
    pub(super) addons: AddonSwitches,
    pub(super) member_caches: MemberCaches,
    /// The connections of the cluster proxy; `None` in a simulated member.
    pub(super) proxy_backends: Option<ClusterProxyBackends>,
}

impl Endpoints {
    /// The endpoints of a control plane.
    pub(super) fn of_control_plane(
        resources: &StandaloneResources,
        access: &RequestAccess,
        metrics: &MetricsRegistry,
        clock: &Arc<dyn Clock>,
        tasks: &TaskGroup,
    ) -> Self {
        let api = &resources.api;
        let addons = AddonSwitches::watch(api, ADDONS_NAMESPACE, tasks);
        let member_caches = MemberCaches::new(&resources.watch_caches);
        let own_control_plane = Arc::<OwnControlPlane>::default();
        let backends = ClusterProxyBackends::start(Arc::clone(api), tasks);
        let adapter = &resources.metrics_adapter;
        adapter.set_backends(backends.clone(), &addons);
        let context = ClusterConnectorContext {
            api,
            registry: &resources.registry,
            authorizer: access.authorizer.clone(),
            control_plane: Arc::clone(&own_control_plane) as _,
            member_caches: &member_caches,
            clock,
            tasks,
            metrics,
            addons: &addons,
        };
        Self {
            connectors: cluster_connectors(backends.clone(), context),
            dynamic_groups: adapter.dynamic_groups(),
            own_control_plane,
            addons,
            member_caches,
            proxy_backends: Some(backends),
        }
    }

    /// The endpoints of a simulated member.
    pub(super) fn of_simulated_member(
        resources: &StandaloneResources,
        clock: &Arc<dyn Clock>,
        tasks: &TaskGroup,
    ) -> Self {
        let api = &resources.api;
        Self {
            connectors: container_connectors(api, clock, tasks),
            dynamic_groups: hollow_custom_metrics_providers(api, clock),
            own_control_plane: Arc::default(),
            addons: AddonSwitches::none(),
            member_caches: MemberCaches::new(&resources.watch_caches),
            proxy_backends: None,
        }
    }
}
