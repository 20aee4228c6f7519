//! Keeps the backend stores in sync with ResourceRegistries, Clusters, Secrets and the caches. It
//! runs in the replica that leads, so that a document has one writer; it reads the caches of this
//! replica.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::remote::NetworkSendFence;
use client::{Api, Informer, InformerFactory, ListWatchSelector, TaskGroup};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use openapi::karmada::ResourceRegistry;
use openapi::karmada::resources::{CLUSTERS, RESOURCE_REGISTRIES};
use tokio::sync::Notify;

use super::config::BackendStoreKey;
use super::indexed_resource::IndexedSelection;
use super::limits::BackendStoreLimits;
use super::named_store::NamedStore;
use super::registry_status::{self, BackendStoreReport};
use crate::controller::MemberCaches;
use crate::selected_resources::selected_resources;

/// The dependencies of the backend stores.
pub struct BackendStoreContext {
    /// The API server with ResourceRegistries, Clusters and Secrets.
    pub control_plane: Arc<dyn Api>,
    pub caches: MemberCaches,
    pub clock: Arc<dyn Clock>,
    pub informers: InformerFactory,
    /// Nothing is sent to a store while it is closed.
    pub send_fence: Option<NetworkSendFence>,
}

/// Starts the backend stores; they stop with `tasks`.
pub fn start_backend_stores(context: BackendStoreContext, tasks: &TaskGroup) {
    start_with_limits(context, BackendStoreLimits::default(), tasks);
}

pub(crate) fn start_with_limits(
    context: BackendStoreContext,
    limits: BackendStoreLimits,
    tasks: &TaskGroup,
) {
    let changed = Arc::new(Notify::new());
    let informer = |resource: &Gvr| {
        let select = ListWatchSelector::all(resource);
        let informer = context.informers.get(&context.control_plane, &select);
        notify_of_changes(&informer, &changed);
        informer
    };
    let controller = BackendStoreController {
        registries: informer(&RESOURCE_REGISTRIES),
        clusters: informer(&CLUSTERS),
        context,
        limits,
        changed,
        stores: BTreeMap::new(),
        tasks: tasks.clone(),
    };
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        shutdown.run_until_triggered(controller.run()).await;
    });
}

fn notify_of_changes(informer: &Informer, changed: &Arc<Notify>) {
    let notify = Arc::clone(changed);
    informer.add_event_handler(move |_| notify.notify_one());
}

struct BackendStoreController {
    context: BackendStoreContext,
    limits: BackendStoreLimits,
    registries: Informer,
    clusters: Informer,
    changed: Arc<Notify>,
    stores: BTreeMap<BackendStoreKey, NamedStore>,
    tasks: TaskGroup,
}

impl BackendStoreController {
    async fn run(mut self) {
        self.registries.wait_for_cache_sync().await;
        self.clusters.wait_for_cache_sync().await;
        let mut caches = self.context.caches.0.subscribe();
        loop {
            self.reconcile().await;
            tokio::select! {
                () = self.changed.notified() => {}
                Ok(()) = caches.changed() => {}
            }
        }
    }

    async fn reconcile(&mut self) {
        let registries = self.registries.list();
        let mut named: BTreeMap<BackendStoreKey, Vec<Object>> = BTreeMap::new();
        for registry in registries.iter().filter(|r| !r.meta().deleting) {
            if let Some(key) = store_key(registry) {
                named.entry(key).or_default().push(registry.clone());
            }
        }
        self.stop_all_but(&named).await;
        let clusters = match named.is_empty() {
            true => Vec::new(),
            false => self.clusters.list(),
        };
        for (key, of_store) in named {
            let selected = self.selections(&of_store, &clusters);
            let store = self.stores.entry(key.clone()).or_insert_with(|| {
                let context = &self.context;
                NamedStore::new(
                    key,
                    self.limits.clone(),
                    context.send_fence.clone(),
                    &context.control_plane,
                    Arc::clone(&self.changed),
                    &self.tasks,
                )
            });
            store.update(selected).await;
        }
        self.report(&registries).await;
    }

    async fn stop_all_but(&mut self, named: &BTreeMap<BackendStoreKey, Vec<Object>>) {
        let former = std::mem::take(&mut self.stores);
        for (key, store) in former {
            match named.contains_key(&key) {
                true => {
                    self.stores.insert(key, store);
                }
                false => store.stop().await,
            }
        }
    }

    /// The selection of a store's registries in the caches. Only kinds that a registry names are
    /// there: a selector has no wildcards.
    fn selections(&self, registries: &[Object], clusters: &[Object]) -> Vec<IndexedSelection> {
        let uid_of = |cluster: &str| {
            let object = clusters.iter().find(|object| object.name() == cluster);
            object.map(|object| object.uid().to_owned())
        };
        let mut selections = Vec::new();
        for (gvr, resource) in selected_resources(registries, clusters) {
            let Some(caches) = self.context.caches.0.find(&gvr) else {
                continue;
            };
            for (cluster, scope) in resource.clusters {
                let member = caches.members.get(&cluster);
                if let Some((member, cluster_uid)) = member.zip(uid_of(&cluster)) {
                    selections.push(IndexedSelection {
                        cluster,
                        cluster_uid,
                        kind: resource.kind.clone(),
                        scope,
                        member: Arc::clone(member),
                    });
                }
            }
        }
        selections
    }

    async fn report(&self, registries: &[Object]) {
        for registry in registries.iter().filter(|r| !r.meta().deleting) {
            let report = match store_key(registry) {
                None => Some(BackendStoreReport::None),
                Some(key) => self.stores.get(&key).and_then(NamedStore::report),
            };
            if let Some(report) = report {
                let context = &self.context;
                let (api, clock) = (&*context.control_plane, &*context.clock);
                registry_status::report(api, clock, registry, &report).await;
            }
        }
    }
}

fn store_key(registry: &Object) -> Option<BackendStoreKey> {
    let registry = registry.decode::<ResourceRegistry>().ok()?;
    Some(BackendStoreKey::of(registry.spec.open_search()?))
}
