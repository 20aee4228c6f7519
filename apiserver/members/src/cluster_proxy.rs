//! Backends of the cluster proxy: connections that forward the requests of users to
//! member clusters, with impersonation.
//!
//! They are separate from the controllers' connections, so that neither waits for the
//! other. Each cluster has a bounded number of requests in flight. Nothing is dialed
//! before the first request.
//!
//! Karmada: `pkg/util/proxy`. Secrets are read from informers, or from the host's API if
//! the informer does not have them yet.

use std::sync::Arc;

use ahash::AHashMap;
use client::remote::{Http2FlowControl, RequestForwarder};
use client::{
    Api, Informer, InformerFactory, ListOptions, ListWatchSelector, ResourcePath, TaskGroup,
};
use machinery::{Gvr, Object};
use openapi::karmada::Cluster;
use openapi::karmada::cluster::LocalSecretReference;
use openapi::karmada::resources::CLUSTERS;
use parking_lot::Mutex;

use crate::agent_tunnels::AgentTunnels;
use crate::cluster_proxy_backend::{ClusterProxyBackend, ClusterProxyPermit};
use crate::endpoint::MemberEndpoint;

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

struct ClusterProxyBackendsInner {
    host: Arc<dyn Api>,
    informers: InformerFactory,
    clusters: Informer,
    tasks: TaskGroup,
    open_backends: Mutex<AHashMap<String, Arc<ClusterProxyBackend>>>,
    tunnels: AgentTunnels,
}

/// The backends of all clusters, opened on first use. Clones are the same.
#[derive(Clone)]
pub struct ClusterProxyBackends(Arc<ClusterProxyBackendsInner>);

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
        });
        let known = Arc::downgrade(&shared);
        shared.clusters.add_event_handler(move |change| {
            // The connections to a cluster end when it is deleted.
            if let (Some(shared), None) = (known.upgrade(), change.new) {
                let name = change.object().name();
                shared.tunnels.forget(name);
                if let Some(gone) = shared.open_backends.lock().remove(name) {
                    shared.tasks.spawn(async move { gone.stop().await });
                }
            }
        });
        Self(shared)
    }

    /// A permit for one request to a cluster.
    pub async fn acquire(&self, cluster: &str) -> Result<ClusterProxyPermit, ClusterProxyError> {
        let gateway = match self.0.tunnels.get(cluster) {
            Some(tunnel) => {
                // The tunnel may have been opened while its Cluster was deleted.
                if self.0.clusters.get("", cluster).is_none() {
                    self.cluster(cluster).await?;
                }
                tunnel
            }
            None => self.get_or_open(self.endpoint(cluster).await?)?,
        };
        let permit = gateway.try_acquire();
        permit.ok_or_else(|| ClusterProxyError::TooManyRequests(cluster.to_owned()))
    }

    /// The names of all Clusters, read from the API, so that a cluster created just now
    /// is included.
    pub async fn cluster_names(&self) -> Result<Vec<String>, ClusterProxyError> {
        let at = ResourcePath::collection(&CLUSTERS, "");
        let listed = self.0.host.list(at, &ListOptions::default()).await;
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
        MemberEndpoint::for_impersonation(name, spec, access.as_ref(), &impersonator)
            .map_err(ClusterProxyError::Misconfigured)
    }

    async fn get_secret(
        &self,
        cluster: &str,
        at: &LocalSecretReference,
    ) -> Result<Object, ClusterProxyError> {
        let shared = &self.0;
        let select = ListWatchSelector::all(&SECRETS).namespace(&at.namespace);
        let informer = shared.informers.get(&shared.host, &select);
        if let Some(existing) = informer.get(&at.namespace, &at.name) {
            return Ok(existing);
        }
        let existing = shared
            .host
            .get(ResourcePath::object(&SECRETS, &at.namespace, &at.name));
        existing.await.map_err(|e| match e.is_not_found() {
            true => ClusterProxyError::Misconfigured(format!(
                "the secret \"{}/{}\" of cluster {cluster:?} does not exist",
                at.namespace, at.name
            )),
            false => ClusterProxyError::HostApi(e),
        })
    }

    /// The backend of an endpoint. One of an earlier endpoint is closed when its last
    /// request has ended.
    fn get_or_open(
        &self,
        endpoint: MemberEndpoint,
    ) -> Result<Arc<ClusterProxyBackend>, ClusterProxyError> {
        let shared = &self.0;
        let mut open = shared.open_backends.lock();
        let current = open.get(&endpoint.cluster);
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
        let name = gateway.endpoint.cluster.clone();
        if let Some(former) = open.insert(name, Arc::clone(&gateway)) {
            shared.tasks.spawn(async move { former.drain().await });
        }
        Ok(gateway)
    }
}

#[cfg(test)]
#[path = "cluster_proxy_tests.rs"]
mod tests;
