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
use client::remote::{Flow, Forwarder};
use client::{Api, At, Informer, Informers, ListOptions, Select, Shutdown, Tasks};
use machinery::{Gvr, Object};
use openapi::karmada::Cluster;
use openapi::karmada::cluster::SecretRef;
use openapi::karmada::resources::CLUSTERS;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::endpoint::Endpoint;

static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");

/// The limit of requests, watches and upgraded connections in flight per cluster.
const PLACES: u32 = 512;

/// Why no request can be forwarded to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such Cluster.
    #[error("cluster {0:?} not found")]
    Unknown(String),
    /// The Cluster or one of its secrets is incomplete.
    #[error("{0}")]
    Unusable(String),
    /// A call to the host's API failed.
    #[error("{0}")]
    Host(client::Error),
    /// The limit of requests in flight is reached.
    #[error("too many requests to cluster {0:?} are in flight")]
    Full(String),
}

/// The connections to one cluster, valid while its Cluster and secrets are unchanged.
pub struct Gateway {
    endpoint: Endpoint,
    forwarder: Forwarder,
    places: Arc<Semaphore>,
    tasks: Tasks,
}

/// A permit for one request. It keeps its backend open.
pub struct Place {
    gateway: Arc<Gateway>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Forwards the request.
    pub fn forwarder(&self) -> &Forwarder {
        &self.gateway.forwarder
    }

    /// Triggered when the Cluster is deleted; upgraded connections must end then.
    pub fn gone(&self) -> &Shutdown {
        self.gateway.tasks.shutdown()
    }

    pub fn cluster(&self) -> &str {
        &self.gateway.endpoint.cluster
    }
}

struct Shared {
    host: Arc<dyn Api>,
    informers: Informers,
    clusters: Informer,
    tasks: Tasks,
    open: Mutex<AHashMap<String, Arc<Gateway>>>,
}

/// The backends of all clusters, opened on first use. Clones are the same.
#[derive(Clone)]
pub struct Gateways(Arc<Shared>);

impl Gateways {
    /// `tasks` owns the connections and the informers on `host`.
    pub fn start(host: Arc<dyn Api>, tasks: &Tasks) -> Self {
        let informers = Informers::new(tasks);
        let clusters = informers.get(&host, &Select::all(&CLUSTERS));
        let shared = Arc::new(Shared {
            host,
            informers,
            clusters,
            tasks: tasks.child(),
            open: Mutex::default(),
        });
        let known = Arc::downgrade(&shared);
        shared.clusters.on_change(move |change| {
            // The connections to a cluster end when it is deleted.
            if let (Some(shared), None) = (known.upgrade(), change.new)
                && let Some(gone) = shared.open.lock().remove(change.object().name())
            {
                shared.tasks.spawn(async move { gone.tasks.stop().await });
            }
        });
        Self(shared)
    }

    /// A permit for one request to a cluster.
    pub async fn enter(&self, cluster: &str) -> Result<Place, Refused> {
        let endpoint = self.endpoint(cluster).await?;
        let gateway = self.gateway(endpoint)?;
        let permit = Arc::clone(&gateway.places).try_acquire_owned();
        match permit {
            Ok(permit) => Ok(Place {
                gateway,
                _permit: permit,
            }),
            Err(_) => Err(Refused::Full(cluster.to_owned())),
        }
    }

    /// The names of all Clusters, read from the API, so that a cluster created just now
    /// is included.
    pub async fn names(&self) -> Result<Vec<String>, Refused> {
        let at = At::all(&CLUSTERS, "");
        let listed = self.0.host.list(at, &ListOptions::default()).await;
        let clusters = listed.map_err(Refused::Host)?.items;
        Ok(clusters.iter().map(|c| c.name().to_owned()).collect())
    }

    /// Why the cluster's Ready condition is not True; empty if it is True or absent.
    pub fn trouble(&self, cluster: &str) -> String {
        let view = self.0.clusters.get("", cluster);
        let view = view.and_then(|c| c.view::<Cluster>().ok());
        let ready = view.as_ref().and_then(|c| c.condition("Ready"));
        match ready {
            Some(ready) if ready.status != "True" => {
                format!("{}: {}", ready.reason, ready.message)
            }
            _ => String::new(),
        }
    }

    async fn endpoint(&self, name: &str) -> Result<Endpoint, Refused> {
        let found = match self.0.clusters.get("", name) {
            Some(found) => found,
            None => match self.0.host.get(At::one(&CLUSTERS, "", name)).await {
                Ok(found) => found,
                Err(e) if e.is_not_found() => return Err(Refused::Unknown(name.to_owned())),
                Err(e) => return Err(Refused::Host(e)),
            },
        };
        let cluster = found.view::<Cluster>();
        let cluster = cluster.map_err(|e| Refused::Unusable(format!("cluster {name:?}: {e}")))?;
        let spec = &cluster.spec;
        let Some(impersonator) = &spec.impersonator_secret_ref else {
            return Err(Refused::Unusable(format!(
                "the impersonatorSecretRef of cluster {name:?} is not set"
            )));
        };
        let impersonator = self.secret(name, impersonator).await?;
        let access = match &spec.secret_ref {
            Some(at) if !spec.insecure_skip_tls_verification => Some(self.secret(name, at).await?),
            _ => None,
        };
        Endpoint::for_users(name, spec, access.as_ref(), &impersonator).map_err(Refused::Unusable)
    }

    async fn secret(&self, cluster: &str, at: &SecretRef) -> Result<Object, Refused> {
        let shared = &self.0;
        let select = Select::all(&SECRETS).namespace(&at.namespace);
        let informer = shared.informers.get(&shared.host, &select);
        if let Some(found) = informer.get(&at.namespace, &at.name) {
            return Ok(found);
        }
        let found = shared.host.get(At::one(&SECRETS, &at.namespace, &at.name));
        found.await.map_err(|e| match e.is_not_found() {
            true => Refused::Unusable(format!(
                "the secret \"{}/{}\" of cluster {cluster:?} does not exist",
                at.namespace, at.name
            )),
            false => Refused::Host(e),
        })
    }

    /// The backend of an endpoint. One of an earlier endpoint is closed when its last
    /// request has ended.
    fn gateway(&self, endpoint: Endpoint) -> Result<Arc<Gateway>, Refused> {
        let shared = &self.0;
        let mut open = shared.open.lock();
        let current = open.get(&endpoint.cluster);
        if let Some(gateway) = current.filter(|g| g.endpoint == endpoint) {
            return Ok(Arc::clone(gateway));
        }
        let mut config = endpoint.config().map_err(Refused::Unusable)?;
        config.flow = Flow::SHARED;
        let tasks = shared.tasks.child();
        let forwarder = Forwarder::new(config, &tasks)
            .map_err(|e| Refused::Unusable(format!("cluster {:?}: {e}", endpoint.cluster)))?;
        let gateway = Arc::new(Gateway {
            forwarder,
            places: Arc::new(Semaphore::new(PLACES as usize)),
            tasks,
            endpoint,
        });
        let name = gateway.endpoint.cluster.clone();
        if let Some(former) = open.insert(name, Arc::clone(&gateway)) {
            shared.tasks.spawn(async move {
                let over = former.places.acquire_many(PLACES);
                former.tasks.shutdown().unless(over).await;
                former.tasks.stop().await;
            });
        }
        Ok(gateway)
    }
}

#[cfg(test)]
#[path = "cluster_proxy_tests.rs"]
mod tests;
