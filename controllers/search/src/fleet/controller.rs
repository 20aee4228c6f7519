//! Keeps the caches in sync with what is read and with the Clusters. It runs in every replica, since
//! every replica serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use client::Informer;
use flotilla_runtime::ControllerContext;
use futures_util::future::join_all;
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use machinery::names::join_api_version;
use machinery::{Gvk, Gvr, Object, Status};
use members::{
    AgentTunnels, CONTROL_PLANE, ClusterProxyBackends, FleetCache, FleetResource, FleetSources,
    MemberAccess, MemberConnector, ServedResources,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use watchcache::{CacherListRequest, ListRevision, SelectionPredicate};

use super::control_plane::ControlPlaneResources;
use super::demand::{DemandedKind, DemandedResources, IDLE_TIMEOUT};
use super::resource::CachedFleetResource;
use crate::cache_budget::CacheBudget;
use crate::controller::{ConnectedMembers, MemberCaches};
use crate::member_resource::{CachedForm, NamespaceScope};
use crate::metrics;
use crate::resource_caches::{MemberCacher, ResourceCaches, SelectedResourceCaches};
use crate::resource_version::member_resource_version;
use crate::selected_resources::{SelectedResource, SelectedResources};

/// How long a read waits for the objects of a member whose cache was just started.
const FILL_TIMEOUT: Duration = Duration::from_secs(3);
/// The most group versions of a member that are looked at.
const MAX_GROUP_VERSIONS: usize = 1000;

/// The dependencies of the cache beside its context.
pub struct FleetOptions {
    pub connector: Arc<dyn MemberConnector>,
    /// Have the tunnels by which members in pull mode are reached.
    pub backends: ClusterProxyBackends,
    /// The caches of the search, with which the fleet view shares the memory for events.
    pub caches: MemberCaches,
}

/// Starts the cache; it stops with the tasks of the context. No member is connected, and no Cluster
/// is watched, before something is read.
pub fn start_fleet(context: &ControllerContext, options: FleetOptions) -> Arc<dyn FleetCache> {
    let watch_caches = Arc::clone(&options.caches.0.watch_caches);
    let budget = Some(Arc::new(CacheBudget::of_process()));
    let caches = SelectedResourceCaches::new(watch_caches, CachedForm::Fleet, budget);
    let shared = Arc::new(SharedFleetCache {
        context: context.clone(),
        backends: options.backends,
        clusters: OnceLock::new(),
        control_plane: ControlPlaneResources::new(&context.control_plane),
        demanded: DemandedResources::default(),
        caches: Arc::new(caches),
        changed: Arc::new(Notify::new()),
    });
    metrics::register(&shared.caches);
    let controller = FleetController {
        shared: Arc::clone(&shared),
        connector: options.connector,
        connected: None,
    };
    context.tasks.spawn(controller.run());
    shared
}

struct SharedFleetCache {
    context: ControllerContext,
    backends: ClusterProxyBackends,
    /// Started with the first read.
    clusters: OnceLock<Informer>,
    control_plane: ControlPlaneResources,
    demanded: DemandedResources,
    caches: Arc<SelectedResourceCaches>,
    changed: Arc<Notify>,
}

/// The Clusters, each decoded and with the reason if it cannot be read.
struct DecodedClusters(Vec<DecodedCluster>);

struct DecodedCluster {
    name: String,
    uid: String,
    cluster: Arc<Cluster>,
    availability: Result<(), String>,
}

impl DecodedClusters {
    fn of(objects: Vec<Object>, backends: &ClusterProxyBackends) -> Self {
        let decoded = objects.into_iter().filter_map(|object| {
            let cluster = object.decode::<Cluster>().ok()?;
            Some(DecodedCluster {
                name: object.name().to_owned(),
                uid: object.uid().to_owned(),
                availability: availability(&object, &cluster, backends.tunnels()),
                cluster,
            })
        });
        Self(decoded.collect())
    }

    /// The clusters that serve a resource, and whether each can be read or why not.
    fn serving<'a>(
        &'a self,
        resource: &'a Gvr,
    ) -> impl Iterator<Item = (&'a str, &'a str, Result<(), String>)> {
        let api_version = join_api_version(&resource.group, &resource.version);
        self.0.iter().filter_map(move |decoded| {
            let enablements = decoded.cluster.status.api_enablements.iter();
            let served = enablements
                .filter(|e| e.group_version == api_version)
                .flat_map(|e| &e.resources)
                .find(|r| *r.name == *resource.resource)?;
            let availability = decoded.availability.clone();
            Some((&*decoded.name, &*served.kind, availability))
        })
    }

    /// The kind of a resource, if a cluster serves it: Kubernetes' own, or the one that most clusters say.
    fn kind(&self, resource: &Gvr) -> Option<Gvk> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, kind, _) in self.serving(resource) {
            *counts.entry(kind).or_default() += 1;
        }
        let (kind, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        Some(match openapi::catalog().resource(resource) {
            Some(catalog_kind) => catalog_kind.gvk.clone(),
            None => Gvk::new(&*resource.group, &*resource.version, kind),
        })
    }
}

/// Whether a cluster can be read from this replica, or why not.
fn availability(object: &Object, cluster: &Cluster, tunnels: &AgentTunnels) -> Result<(), String> {
    if object.meta().deleting {
        return Err("is being deleted".to_owned());
    }
    if !cluster.is_ready() {
        return Err(match cluster.condition("Ready") {
            Some(condition) => format!("not ready: {}", condition.reason),
            None => "not ready yet".to_owned(),
        });
    }
    match cluster.spec.sync_mode == "Pull" && !tunnels.is_reachable(object.name()) {
        true => Err("its agent has no tunnel to this replica of the control plane".to_owned()),
        false => Ok(()),
    }
}

impl SharedFleetCache {
    async fn clusters(&self) -> DecodedClusters {
        let start = || self.context.informer(&CLUSTERS);
        let clusters = self.clusters.get_or_init(start);
        // A member that is not listed by then is missing from the answer.
        let _ = timeout(FILL_TIMEOUT, clusters.wait_for_cache_sync()).await;
        DecodedClusters::of(clusters.list(), &self.backends)
    }

    /// The caches of a resource, once the controller has started them.
    async fn started_caches(
        &self,
        resource: &Gvr,
        with_control_plane: bool,
    ) -> Result<Arc<ResourceCaches>, Status> {
        let mut changes = self.caches.subscribe();
        let started = async {
            loop {
                if let Some(caches) = self.caches.find(resource)
                    && (!with_control_plane || caches.members.contains_key(CONTROL_PLANE))
                {
                    return Some(caches);
                }
                changes.changed().await.ok()?;
            }
        };
        let started = timeout(FILL_TIMEOUT, started).await.ok().flatten();
        started.ok_or_else(|| Status::unavailable("the members are not connected yet"))
    }

    /// Why servers of a resource are missing from the caches.
    async fn missing(
        &self,
        resource: &Gvr,
        clusters: &DecodedClusters,
        (caches, with_control_plane): (&ResourceCaches, bool),
    ) -> BTreeMap<String, String> {
        let mut missing = caches.unreachable.clone();
        for (cluster, _, availability) in clusters.serving(resource) {
            if let Err(reason) = availability {
                missing.insert(cluster.to_owned(), reason);
            }
        }
        let is_read = |cluster: &str| with_control_plane || cluster != CONTROL_PLANE;
        let members = caches.members.iter();
        let members = members.filter(|(cluster, _)| is_read(cluster));
        let fills = members.map(|(cluster, member)| async move {
            let reason = fill_error(member).await?;
            Some((cluster.clone(), reason))
        });
        missing.extend(join_all(fills).await.into_iter().flatten());
        missing
    }
}

/// Why the objects of a member cannot be read yet.
async fn fill_error(member: &MemberCacher) -> Option<String> {
    if member.cacher.ready() {
        return None;
    }
    // It waits for the list of the member.
    let first = member.cacher.list(CacherListRequest {
        filter: SelectionPredicate::default(),
        revision: ListRevision::Any,
        limit: 1,
    });
    match timeout_at(member.started + FILL_TIMEOUT, first).await {
        Ok(Ok(_)) => None,
        _ => {
            let failure = member.store.last_failure();
            Some(failure.unwrap_or_else(|| "its objects are not cached yet".to_owned()))
        }
    }
}

#[async_trait]
impl FleetCache for SharedFleetCache {
    async fn has_cluster(&self, name: &str) -> bool {
        let clusters = self.clusters().await;
        clusters.0.iter().any(|decoded| decoded.name == name)
    }

    async fn cluster_uids(&self) -> BTreeMap<String, String> {
        let clusters = self.clusters().await;
        let uids = clusters.0.into_iter();
        uids.map(|decoded| (decoded.name, decoded.uid)).collect()
    }

    async fn served_resources(&self) -> BTreeMap<String, ServedResources> {
        let clusters = self.clusters().await;
        let available = clusters
            .0
            .iter()
            .filter(|decoded| decoded.availability.is_ok());
        available
            .map(|decoded| {
                let enablements = decoded.cluster.status.api_enablements.iter();
                let served = enablements.take(MAX_GROUP_VERSIONS).map(|enablement| {
                    let names = enablement.resources.iter().map(|r| r.name.clone());
                    (enablement.group_version.clone(), names.collect())
                });
                (decoded.name.clone(), served.collect())
            })
            .collect()
    }

    async fn serving_members(&self, resource: &Gvr) -> BTreeMap<String, bool> {
        let clusters = self.clusters().await;
        let serving = clusters.serving(resource);
        serving
            .map(|(cluster, _, availability)| (cluster.to_owned(), availability.is_ok()))
            .collect()
    }

    async fn resource(
        &self,
        resource: &Gvr,
        sources: FleetSources,
    ) -> Result<Arc<dyn FleetResource>, Status> {
        let clusters = self.clusters().await;
        let kind = clusters.kind(resource).ok_or_else(Status::path_not_found)?;
        let with_control_plane = sources == FleetSources::MembersAndControlPlane
            && self.control_plane.can_be_cached(resource).await?;
        let read = DemandedKind {
            kind,
            with_control_plane,
        };
        let (usage, is_new) = self.demanded.add(resource, read)?;
        if is_new {
            self.changed.notify_one();
        }
        let caches = self.started_caches(resource, with_control_plane).await?;
        let read = (&*caches, with_control_plane);
        let missing = self.missing(resource, &clusters, read).await;
        let sources = match with_control_plane {
            true => sources,
            false => FleetSources::Members,
        };
        Ok(Arc::new(CachedFleetResource {
            caches,
            missing,
            usage,
            sources,
        }))
    }

    fn member_resource_version(&self, cluster: &str, text: &str) -> Option<String> {
        member_resource_version(cluster, text)
    }
}

struct FleetController {
    shared: Arc<SharedFleetCache>,
    connector: Arc<dyn MemberConnector>,
    connected: Option<ConnectedMembers>,
}

impl FleetController {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let shutdown = shared.context.tasks.shutdown().clone();
        let tunnels = shared.backends.tunnels();
        let mut tunnel_changes = tunnels.subscribe();
        loop {
            // Without a change it looks whether something is not read any more.
            let idle_at = Instant::now() + IDLE_TIMEOUT / 4;
            let unreachable_at = tunnels.next_unreachable_at().unwrap_or(idle_at);
            let next = async {
                tokio::select! {
                    () = shared.changed.notified() => {}
                    Ok(()) = tunnel_changes.changed() => {}
                    () = sleep_until(idle_at.min(unreachable_at)) => {}
                }
                self.reconcile().await;
            };
            if shutdown.run_until_triggered(next).await.is_none() {
                break;
            }
        }
        self.disconnect().await;
    }

    async fn reconcile(&mut self) {
        let demanded = self.shared.demanded.retain_read();
        if demanded.is_empty() {
            self.disconnect().await;
            return;
        }
        let shared = &self.shared;
        let start = || ConnectedMembers::start(&shared.context, &self.connector, &shared.changed);
        let connected = self.connected.get_or_insert_with(start);
        connected.manager.wait_for_cache_sync().await;
        let clusters = DecodedClusters::of(connected.clusters.list(), &shared.backends);
        let selected = selected(&demanded, &clusters);
        let manager = &connected.manager;
        let api = |cluster: &str| match cluster {
            CONTROL_PLANE => Ok(Arc::clone(&shared.context.control_plane)),
            member => manager.api(member),
        };
        shared.caches.update(&selected, &api).await;
    }

    /// While nothing is read, nothing is kept.
    async fn disconnect(&mut self) {
        self.shared.caches.clear().await;
        if let Some(connected) = self.connected.take() {
            connected.stop().await;
        }
    }
}

/// The demanded resources in the Ready clusters that serve them, and in the control plane.
fn selected(
    demanded: &BTreeMap<Gvr, DemandedKind>,
    clusters: &DecodedClusters,
) -> SelectedResources {
    let resource = |(gvr, demanded): (&Gvr, &DemandedKind)| {
        let available: BTreeSet<&str> = clusters
            .serving(gvr)
            .filter(|(_, _, availability)| availability.is_ok())
            .map(|(cluster, _, _)| cluster)
            .collect();
        let control_plane = demanded.with_control_plane.then_some(CONTROL_PLANE);
        let clusters = available
            .into_iter()
            .chain(control_plane)
            .map(|cluster| (cluster.to_owned(), NamespaceScope::All))
            .collect();
        let selected = SelectedResource {
            kind: demanded.kind.clone(),
            clusters,
        };
        (gvr.clone(), selected)
    };
    demanded.iter().map(resource).collect()
}
