//! Keeps the Service `default/kubernetes`, its Endpoints and its EndpointSlice, at which clients
//! inside a cluster look for its API servers.
//!
//! A server alone writes its own address. Servers that share a store renew a Lease each with
//! their address, and every one of them writes the addresses whose Leases have not expired
//! (`pkg/controlplane/reconcilers/lease.go`).

mod objects;
mod server_lease;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, Error, InformerFactory, ListWatchSelector, Patch, ResourcePath, TaskGroup, WriteOptions,
    ignore_not_found,
};
use flotilla_runtime::{ReconcileAction, Workqueue, run_workers};
use machinery::Gvr;
use machinery::time::Clock;
use serde_json::Value;

use objects::{NAME, NAMESPACE, ServerEndpoints, missing_fields, service, service_patch};
use server_lease::ServerLeases;

static SERVICES: Gvr = Gvr::from_static("", "v1", "services");
static ENDPOINTS: Gvr = Gvr::from_static("", "v1", "endpoints");
static SLICES: Gvr = Gvr::from_static("discovery.k8s.io", "v1", "endpointslices");
/// How long the objects of a server that stops may take.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameters of the controller.
pub struct KubernetesServiceOptions {
    /// Where other machines reach this server.
    pub address: SocketAddr,
    /// Whether other servers may write to the same store.
    pub shared_store: bool,
    pub clock: Arc<dyn Clock>,
}

struct KubernetesServiceController {
    api: Arc<dyn Api>,
    address: SocketAddr,
    leases: Option<ServerLeases>,
}

/// Keeps the objects until `tasks` end.
pub fn start(api: &Arc<dyn Api>, options: KubernetesServiceOptions, tasks: &TaskGroup) {
    let KubernetesServiceOptions {
        address,
        shared_store,
        clock,
    } = options;
    let controller = Arc::new(KubernetesServiceController {
        api: Arc::clone(api),
        address,
        leases: shared_store.then(|| ServerLeases::new(Arc::clone(api), address, clock)),
    });
    let queue: Workqueue<()> = Workqueue::new();
    queue.add(());
    let informers = InformerFactory::new(tasks);
    for resource in [&SERVICES, &ENDPOINTS, &SLICES] {
        let selector = ListWatchSelector::all(resource).namespace(NAMESPACE);
        let selector = selector.fields(format!("metadata.name={NAME}"));
        let wake = queue.clone();
        informers
            .get(api, &selector)
            .add_event_handler(move |change| {
                if !change.in_initial_list {
                    wake.add(());
                }
            });
    }
    let running = Arc::clone(&controller);
    run_workers(tasks, "kubernetes-service", &queue, 1, move |()| {
        let controller = Arc::clone(&running);
        async move { controller.reconcile().await }
    });
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        // The informers live as long as the controller.
        let _informers = informers;
        shutdown.wait().await;
        let withdrawn = tokio::time::timeout(WITHDRAWAL_TIMEOUT, controller.withdraw()).await;
        if let Ok(Err(error)) = withdrawn {
            tracing::debug!(%error, "the address of this server expires with its Lease");
        }
    });
}

impl KubernetesServiceController {
    async fn reconcile(&self) -> Result<ReconcileAction, Error> {
        let Some(leases) = &self.leases else {
            self.publish(&BTreeSet::from([self.address])).await?;
            return Ok(ReconcileAction::Done);
        };
        leases.renew().await?;
        self.publish(&leases.live_addresses().await?).await?;
        Ok(ReconcileAction::RequeueAfter(server_lease::RENEW_INTERVAL))
    }

    /// Removes the address of this server, if others serve on.
    async fn withdraw(&self) -> Result<(), Error> {
        let Some(leases) = &self.leases else {
            return Ok(());
        };
        leases.release().await?;
        self.publish(&leases.live_addresses().await?).await
    }

    async fn publish(&self, servers: &BTreeSet<SocketAddr>) -> Result<(), Error> {
        let Some(endpoints) = ServerEndpoints::new(servers) else {
            return Ok(());
        };
        let port = endpoints.port();
        self.apply(&SERVICES, service(port), |existing| {
            service_patch(existing, port)
        })
        .await?;
        // Of a loopback address, which Endpoints may not have, only the Service exists.
        if servers.iter().any(|server| server.ip().is_loopback()) {
            return Ok(());
        }
        let desired = endpoints.endpoints();
        self.apply(&ENDPOINTS, desired.clone(), |existing| {
            missing_fields(existing, &desired, &["subsets"])
        })
        .await?;
        let desired = endpoints.slice();
        self.apply(&SLICES, desired.clone(), |existing| {
            missing_fields(existing, &desired, &["endpoints", "ports"])
        })
        .await
    }

    /// Creates an object, or patches the one that exists.
    async fn apply(
        &self,
        resource: &Gvr,
        desired: Value,
        patch: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), Error> {
        let at = ResourcePath::object(resource, NAMESPACE, NAME);
        let options = WriteOptions::default();
        let Some(existing) = ignore_not_found(self.api.get_cached(at).await)? else {
            let collection = ResourcePath::collection(resource, NAMESPACE);
            return match self.api.create(collection, desired.into(), &options).await {
                // Another server created it.
                Err(error) if error.is_already_exists() => Ok(()),
                created => created.map(drop),
            };
        };
        let existing = existing.value()?;
        match patch(&existing) {
            Some(patch) => self
                .api
                .patch(at, Patch::Merge(patch), &options)
                .await
                .map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use client::ShutdownToken;
    use client_fake::FakeApi;
    use machinery::time::FakeClock;

    use super::*;

    fn controller(
        api: &Arc<FakeApi>,
        address: &str,
        shared: Option<&Arc<FakeClock>>,
    ) -> KubernetesServiceController {
        let api: Arc<dyn Api> = api.clone();
        let address = address.parse().unwrap();
        let leases = shared.map(|clock| {
            let clock: Arc<dyn Clock> = clock.clone();
            ServerLeases::new(Arc::clone(&api), address, clock)
        });
        KubernetesServiceController {
            api,
            address,
            leases,
        }
    }

    fn addresses(api: &FakeApi) -> Vec<String> {
        let endpoints = api.get_object(&ENDPOINTS, NAMESPACE, NAME).unwrap();
        let addresses = endpoints["subsets"][0]["addresses"].as_array().unwrap();
        addresses
            .iter()
            .map(|a| a["ip"].as_str().unwrap().to_owned())
            .collect()
    }

    #[tokio::test]
    async fn a_server_alone_publishes_its_address_once() {
        let fake = FakeApi::new();
        let one = controller(&fake, "10.0.0.1:6443", None);
        one.reconcile().await.unwrap();
        assert_eq!(addresses(&fake), ["10.0.0.1"]);
        let writes = fake.writes().len();
        assert_eq!(writes, 3);
        one.reconcile().await.unwrap();
        assert_eq!(fake.writes().len(), writes, "nothing differs");
        controller(&fake, "10.0.0.9:6443", None)
            .reconcile()
            .await
            .unwrap();
        assert_eq!(addresses(&fake), ["10.0.0.9"]);
    }

    #[tokio::test]
    async fn servers_of_one_store_publish_those_whose_leases_live() {
        let fake = FakeApi::new();
        let clock = Arc::new(FakeClock::new("2026-01-02T03:04:05Z".parse().unwrap()));
        let one = controller(&fake, "10.0.0.1:6443", Some(&clock));
        let other = controller(&fake, "10.0.0.2:6443", Some(&clock));
        one.reconcile().await.unwrap();
        other.reconcile().await.unwrap();
        assert_eq!(addresses(&fake), ["10.0.0.1", "10.0.0.2"]);
        clock.set("2026-01-02T03:05:05Z".parse().unwrap());
        other.reconcile().await.unwrap();
        assert_eq!(addresses(&fake), ["10.0.0.2"], "a Lease has expired");
        one.reconcile().await.unwrap();
        other.withdraw().await.unwrap();
        assert_eq!(addresses(&fake), ["10.0.0.1"]);
    }

    #[tokio::test]
    async fn a_deleted_object_comes_back() {
        let fake = FakeApi::new();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let options = KubernetesServiceOptions {
            address: "10.0.0.1:6443".parse().unwrap(),
            shared_store: false,
            clock: Arc::new(FakeClock::new("2026-01-02T03:04:05Z".parse().unwrap())),
        };
        start(&(fake.clone() as Arc<dyn Api>), options, &tasks);
        let exists = async || {
            while fake.get_object(&SLICES, NAMESPACE, NAME).is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, exists()).await.unwrap();
        fake.remove(&SLICES, NAMESPACE, NAME);
        tokio::time::timeout(limit, exists()).await.unwrap();
        tasks.stop().await;
    }
}
