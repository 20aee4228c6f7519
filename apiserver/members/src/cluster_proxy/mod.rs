//! Backends of the cluster proxy: connections that forward the requests of users to
//! member clusters, with impersonation.
//!
//! They are separate from the controllers' connections, so that neither waits for the
//! other. Each cluster has a bounded number of requests in flight. Nothing is dialed
//! before the first request.
//!
//! Karmada: `pkg/util/proxy`. Secrets are read from informers, or from the host's API if
//! the informer does not have them yet.

use std::sync::{Arc, OnceLock};

use ahash::AHashMap;
use client::remote::{Http2FlowControl, RequestForwarder};
use client::{
    Api, Informer, InformerEvent, InformerFactory, ListOptions, ListWatchSelector, ResourcePath,
    TaskGroup,
};
use karmada_api::cluster::LocalSecretReference;
use karmada_api::resources::CLUSTERS;
use karmada_api::{Cluster, ImpersonatedIdentity};
use machinery::{Gvr, Object};
use parking_lot::Mutex;

use crate::agent_tunnels::AgentTunnels;
use crate::cluster_proxy_backend::{ClusterProxyBackend, ClusterProxyPermit};
use crate::endpoint::MemberEndpoint;
use crate::proxy_groups::{ImpersonationScope, ProxyGroups, ProxyGroupsCache};
use crate::tunnel_requests::request_tunnels;

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

/// The limit of requests, watches and upgraded connections in flight per cluster.
const MAX_REQUESTS_PER_CLUSTER: u32 = 512;

/// Why no request can be forwarded to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterProxyError {
    /// There is no such Cluster.
    #[error("cluster {0:?} not found")]
    ClusterNotFound(String),
    /// The Cluster or one of its secrets is incomplete.
    #[error("{0}")]
    Misconfigured(String),
    /// A call to the host's API failed.
    #[error("{0}")]
    HostApi(client::Error),
    /// The cluster is in pull mode, and can be reached through its agent only.
    #[error("the agent of cluster {0:?} has no tunnel to this replica of the control plane")]
    NoTunnel(String),
    /// The Cluster is not in pull mode.
    #[error("cluster {0:?} is not in pull mode: the control plane connects to it")]
    NotPull(String),
    /// The limit of requests in flight is reached.
    #[error("too many requests to cluster {0:?} are in flight")]
    TooManyRequests(String),
}

/// Whose credentials the connections of a backend have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BackendIdentity {
    /// Users with the right to impersonate, and no others.
    Impersonator,
    ControlPlane,
}

/// A permit for one request that the control plane makes itself.
pub struct ControlPlanePermit {
    pub permit: ClusterProxyPermit,
    /// Whether the request must impersonate a user: agents pass on no other through their
    /// tunnels.
    pub needs_user: bool,
}

struct ClusterProxyBackendsInner {
    host: Arc<dyn Api>,
    informers: InformerFactory,
    clusters: Informer,
    tasks: TaskGroup,
    open_backends: Mutex<AHashMap<(String, BackendIdentity), Arc<ClusterProxyBackend>>>,
    tunnels: AgentTunnels,
    /// Started with the first request to a cluster whose impersonator is managed.
    groups: OnceLock<ProxyGroupsCache>,
}

/// The backends of all clusters, opened on first use. Clones are the same.
#[derive(Clone)]
pub struct ClusterProxyBackends(Arc<ClusterProxyBackendsInner>);

/// Whether a Cluster is the same as before, and in pull mode.
fn is_same_pull_cluster(change: &InformerEvent<'_>) -> bool {
    let Some(new) = change.new else {
        return false;
    };
    let is_other = change.old.is_some_and(|old| old.uid() != new.uid());
    let is_pull = new
        .decode::<Cluster>()
        .is_ok_and(|c| c.spec.sync_mode == "Pull");
    is_pull && !is_other
}

impl ClusterProxyBackends {
    /// `tasks` owns the connections and the informers on `host`.
    pub fn start(host: Arc<dyn Api>, tasks: &TaskGroup) -> Self {
        let informers = InformerFactory::new(tasks);
        let clusters = informers.get(&host, &ListWatchSelector::all(&CLUSTERS));
        let shared = Arc::new(ClusterProxyBackendsInner {
            host,
            informers,
            clusters,
            tasks: tasks.child(),
            open_backends: Mutex::default(),
            tunnels: AgentTunnels::default(),
            groups: OnceLock::new(),
        });
        let (requests, shutdown) = (Arc::clone(&shared), shared.tasks.shutdown().clone());
        shared.tasks.spawn(async move {
            let requests = request_tunnels(&*requests.host, &requests.clusters, &requests.tunnels);
            shutdown.run_until_triggered(requests).await;
        });
        let weak = Arc::downgrade(&shared);
        shared.clusters.add_event_handler(move |change| {
            let Some(shared) = weak.upgrade() else {
                return;
            };
            let name = change.object().name();
            // The tunnel of an agent has no use once its cluster is in push mode, or was replaced
            // by another cluster of the same name.
            if shared.tunnels.has_tunnel(name) && !is_same_pull_cluster(change) {
                shared.tunnels.forget(name);
            }
            // The connections to a cluster end when it is deleted.
            if change.new.is_none() {
                shared.tunnels.forget(name);
                if let Some(groups) = shared.groups.get() {
                    groups.forget(name);
                }
                for identity in [BackendIdentity::Impersonator, BackendIdentity::ControlPlane] {
                    let key = (name.to_owned(), identity);
                    if let Some(backend) = shared.open_backends.lock().remove(&key) {
                        shared.tasks.spawn(async move { backend.stop().await });
                    }
                }
            }
        });
        Self(shared)
    }

    /// A permit for one request of a user to a cluster.
    pub async fn acquire(&self, cluster: &str) -> Result<ClusterProxyPermit, ClusterProxyError> {
        let gateway = match self.tunnel(cluster).await? {
            Some(tunnel) => tunnel,
            None => {
                let endpoint = self.endpoint(cluster).await?;
                self.get_or_open(endpoint, BackendIdentity::Impersonator)?
            }
        };
        permit_of(cluster, &gateway)
    }

    /// A permit for one request of the control plane itself to a cluster.
    pub async fn acquire_for_control_plane(
        &self,
        cluster: &str,
    ) -> Result<ControlPlanePermit, ClusterProxyError> {
        let (gateway, needs_user) = match self.tunnel(cluster).await? {
            Some(tunnel) => (tunnel, true),
            None => {
                let endpoint = self.control_plane_endpoint(cluster).await?;
                let opened = self.get_or_open(endpoint, BackendIdentity::ControlPlane)?;
                (opened, false)
            }
        };
        Ok(ControlPlanePermit {
            permit: permit_of(cluster, &gateway)?,
            needs_user,
        })
    }

    /// The tunnel of a cluster's agent, if there is one.
    async fn tunnel(
        &self,
        cluster: &str,
    ) -> Result<Option<Arc<ClusterProxyBackend>>, ClusterProxyError> {
        let Some(tunnel) = self.0.tunnels.get(cluster) else {
            return Ok(None);
        };
        // The tunnel may have been opened while its Cluster was deleted.
        if self.0.clusters.get("", cluster).is_none() {
            self.cluster(cluster).await?;
        }
        Ok(Some(tunnel))
    }

    /// The attributes of users of requests that are impersonated: all groups, and neither uid nor extras,
    /// unless the token is of the account whose rights the controller of impersonation rights
    /// manages.
    pub async fn impersonation_scope(&self, permit: &ClusterProxyPermit) -> ImpersonationScope {
        if !permit.has_managed_impersonator() {
            return ImpersonationScope::default();
        }
        let shared = &self.0;
        let start = || ProxyGroupsCache::start(&shared.host, &shared.informers);
        let groups = shared.groups.get_or_init(start);
        let groups = groups.get(permit.cluster()).await;
        let cluster = shared.clusters.get("", permit.cluster());
        let cluster = cluster.and_then(|cluster| cluster.decode::<Cluster>().ok());
        let identity = match (&groups, cluster) {
            (ProxyGroups::Bound(_), Some(cluster)) => {
                ImpersonatedIdentity::from_annotations(&cluster.metadata.annotations)
            }
            _ => ImpersonatedIdentity::default(),
        };
        ImpersonationScope { groups, identity }
    }

    /// The names of all Clusters, read from the API, so that a cluster created just now
    /// is included.
    pub async fn cluster_names(&self) -> Result<Vec<String>, ClusterProxyError> {
        let path = ResourcePath::collection(&CLUSTERS, "");
        let listed = self.0.host.list(path, &ListOptions::default()).await;
        let clusters = listed.map_err(ClusterProxyError::HostApi)?.items;
        Ok(clusters.iter().map(|c| c.name().to_owned()).collect())
    }

    /// Why the cluster's Ready condition is not True; empty if it is True or absent.
    pub fn not_ready_reason(&self, cluster: &str) -> String {
        let view = self.0.clusters.get("", cluster);
        let view = view.and_then(|c| c.decode::<Cluster>().ok());
        let ready = view.as_ref().and_then(|c| c.condition("Ready"));
        match ready {
            Some(ready) if ready.status != "True" => {
                format!("{}: {}", ready.reason, ready.message)
            }
            _ => String::new(),
        }
    }

    /// The tunnels of agents to this replica.
    pub fn tunnels(&self) -> &AgentTunnels {
        &self.0.tunnels
    }

    /// The owner of the tasks of a new tunnel; an error if the cluster must have none.
    pub async fn tunnel_tasks(&self, cluster: &str) -> Result<TaskGroup, ClusterProxyError> {
        match &*self.cluster(cluster).await?.spec.sync_mode {
            "Pull" => Ok(self.0.tasks.child()),
            _ => Err(ClusterProxyError::NotPull(cluster.to_owned())),
        }
    }

    /// The Cluster of this name, if the informer has it.
    pub fn find_cluster(&self, name: &str) -> Option<Object> {
        self.0.clusters.get("", name)
    }

    async fn cluster(&self, name: &str) -> Result<Arc<Cluster>, ClusterProxyError> {
        let existing = match self.0.clusters.get("", name) {
            Some(existing) => existing,
            None => match self
                .0
                .host
                .get(ResourcePath::object(&CLUSTERS, "", name))
                .await
            {
                Ok(existing) => existing,
                Err(e) if e.is_not_found() => {
                    return Err(ClusterProxyError::ClusterNotFound(name.to_owned()));
                }
                Err(e) => return Err(ClusterProxyError::HostApi(e)),
            },
        };
        existing
            .decode::<Cluster>()
            .map_err(|e| ClusterProxyError::Misconfigured(format!("cluster {name:?}: {e}")))
    }

    async fn endpoint(&self, name: &str) -> Result<MemberEndpoint, ClusterProxyError> {
        let cluster = self.cluster(name).await?;
        let spec = &cluster.spec;
        let unreachable = spec.api_endpoint.is_empty() || spec.impersonator_secret_ref.is_none();
        if spec.sync_mode == "Pull" && unreachable {
            return Err(ClusterProxyError::NoTunnel(name.to_owned()));
        }
        let Some(impersonator) = &spec.impersonator_secret_ref else {
            return Err(ClusterProxyError::Misconfigured(format!(
                "the impersonatorSecretRef of cluster {name:?} is not set"
            )));
        };
        let impersonator = self.get_secret(name, impersonator).await?;
        let access = match &spec.secret_ref {
            Some(at) if !spec.insecure_skip_tls_verification => {
                Some(self.get_secret(name, at).await?)
            }
            _ => None,
        };
        MemberEndpoint::for_impersonation(name, &cluster, access.as_ref(), &impersonator)
            .map_err(ClusterProxyError::Misconfigured)
    }

    /// The endpoint with the credentials that the controllers have.
    async fn control_plane_endpoint(
        &self,
        name: &str,
    ) -> Result<MemberEndpoint, ClusterProxyError> {
        let cluster = self.cluster(name).await?;
        let spec = &cluster.spec;
        let Some(reference) = spec
            .secret_ref
            .as_ref()
            .filter(|_| !spec.api_endpoint.is_empty())
        else {
            return Err(match spec.sync_mode.as_str() {
                "Pull" => ClusterProxyError::NoTunnel(name.to_owned()),
                _ => ClusterProxyError::Misconfigured(format!(
                    "the secretRef of cluster {name:?} is not set"
                )),
            });
        };
        let secret = self.get_secret(name, reference).await?;
        MemberEndpoint::new(name, &cluster, &secret).map_err(ClusterProxyError::Misconfigured)
    }

    async fn get_secret(
        &self,
        cluster: &str,
        reference: &LocalSecretReference,
    ) -> Result<Object, ClusterProxyError> {
        let shared = &self.0;
        let select = ListWatchSelector::all(&SECRETS).namespace(&reference.namespace);
        let informer = shared.informers.get(&shared.host, &select);
        if let Some(existing) = informer.get(&reference.namespace, &reference.name) {
            return Ok(existing);
        }
        let existing = shared.host.get(ResourcePath::object(
            &SECRETS,
            &reference.namespace,
            &reference.name,
        ));
        existing.await.map_err(|e| match e.is_not_found() {
            true => ClusterProxyError::Misconfigured(format!(
                "the secret \"{}/{}\" of cluster {cluster:?} does not exist",
                reference.namespace, reference.name
            )),
            false => ClusterProxyError::HostApi(e),
        })
    }

    /// The backend of an endpoint. One of an earlier endpoint is closed when its last
    /// request has ended.
    fn get_or_open(
        &self,
        endpoint: MemberEndpoint,
        identity: BackendIdentity,
    ) -> Result<Arc<ClusterProxyBackend>, ClusterProxyError> {
        let shared = &self.0;
        let mut open = shared.open_backends.lock();
        let key = (endpoint.cluster.clone(), identity);
        let current = open.get(&key);
        if let Some(gateway) = current.filter(|g| g.endpoint == endpoint) {
            return Ok(Arc::clone(gateway));
        }
        let mut config = endpoint
            .client_config()
            .map_err(ClusterProxyError::Misconfigured)?;
        config.flow_control = Http2FlowControl::INDEPENDENT_READERS;
        let tasks = shared.tasks.child();
        let forwarder = RequestForwarder::new(config, &tasks).map_err(|e| {
            ClusterProxyError::Misconfigured(format!("cluster {:?}: {e}", endpoint.cluster))
        })?;
        let limit = MAX_REQUESTS_PER_CLUSTER;
        let gateway = Arc::new(ClusterProxyBackend::new(endpoint, forwarder, limit, tasks));
        if let Some(former) = open.insert(key, Arc::clone(&gateway)) {
            shared.tasks.spawn(async move { former.drain().await });
        }
        Ok(gateway)
    }
}

pub(crate) fn permit_of(
    cluster: &str,
    gateway: &Arc<ClusterProxyBackend>,
) -> Result<ClusterProxyPermit, ClusterProxyError> {
    let permit = gateway.try_acquire();
    permit.ok_or_else(|| ClusterProxyError::TooManyRequests(cluster.to_owned()))
}

#[cfg(test)]
mod tests;
