//! Ways into the clusters for requests of users, who act there in their own names.
//!
//! Enters: Clusters and their secrets on the host. Leaves: a [`Gateway`] to a
//! cluster, or why there is none. Connections are apart from those of the
//! controllers, so that neither waits for the other; each cluster has a bounded
//! number of places. Nothing is dialled before somebody asks.
//!
//! Karmada: `pkg/util/proxy`; secrets are read from informers, and on the host
//! itself where these do not know them yet.

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

/// Requests, watches and tunnels that a cluster has at once.
const PLACES: u32 = 512;

/// Why nothing can be sent to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such Cluster.
    #[error("cluster {0:?} is not known")]
    Unknown(String),
    /// The Cluster, or a secret of it, lacks something.
    #[error("{0}")]
    Unusable(String),
    /// The host did not answer.
    #[error("{0}")]
    Host(client::Error),
    /// As many requests as may be are under way.
    #[error("too many requests to cluster {0:?} are under way")]
    Full(String),
}

/// A way into one cluster, as long as its Cluster and secrets say the same.
pub struct Gateway {
    endpoint: Endpoint,
    forwarder: Forwarder,
    places: Arc<Semaphore>,
    tasks: Tasks,
}

/// A request under way. Its gateway stays open while it lives.
pub struct Place {
    gateway: Arc<Gateway>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// What passes the request on.
    pub fn forwarder(&self) -> &Forwarder {
        &self.gateway.forwarder
    }

    /// Triggered when the cluster is gone: what is carried by hand ends then.
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

/// The gateways, opened on first use. Clones are the same.
#[derive(Clone)]
pub struct Gateways(Arc<Shared>);

impl Gateways {
    /// `tasks` own the connections, and the informers that follow `host`.
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
            // What a cluster has open ends with it.
            if let (Some(shared), None) = (known.upgrade(), change.new)
                && let Some(gone) = shared.open.lock().remove(change.object().name())
            {
                shared.tasks.spawn(async move { gone.tasks.stop().await });
            }
        });
        Self(shared)
    }

    /// A place at a cluster's gateway.
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

    /// The names of the clusters there are, those included that were written just now.
    pub async fn names(&self) -> Result<Vec<String>, Refused> {
        let at = At::all(&CLUSTERS, "");
        let listed = self.0.host.list(at, &ListOptions::default()).await;
        let clusters = listed.map_err(Refused::Host)?.items;
        Ok(clusters.iter().map(|c| c.name().to_owned()).collect())
    }

    /// What the control plane last saw of a cluster that does not answer; empty where
    /// it saw nothing amiss.
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

    /// The gateway that is open to an endpoint; one to a former endpoint is closed
    /// when the last of its requests is over.
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
#[path = "gateway_tests.rs"]
mod tests;
