//! Keeps the backend stores in sync with ResourceRegistries, Clusters, Secrets and the caches. It
//! runs in the replica that leads, so that a document has one writer; it reads the caches of this
//! replica.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Informer;
use client::remote::NetworkSendFence;
use flotilla_runtime::ControllerContext;
use karmada_api::ResourceRegistry;
use karmada_api::resources::{CLUSTERS, RESOURCE_REGISTRIES};
use machinery::{Gvr, Object};
use tokio::sync::Notify;

use super::config::BackendStoreKey;
use super::indexed_resource::IndexedSelection;
use super::limits::BackendStoreLimits;
use super::named_store::NamedStore;
use super::registry_status::{self, BackendStoreReport};
use crate::controller::MemberCaches;
use crate::selected_resources::selected_resources;

/// What the backend stores work with beside their context.
pub struct BackendStoreOptions {
    pub caches: MemberCaches,
    /// Nothing is sent to a store while it is closed.
    pub send_fence: Option<NetworkSendFence>,
}

/// Starts the backend stores; they stop with the tasks of the context.
pub fn start_backend_stores(context: &ControllerContext, options: BackendStoreOptions) {
    start_with_limits(context, options, BackendStoreLimits::default());
}

pub(crate) fn start_with_limits(
    context: &ControllerContext,
    options: BackendStoreOptions,
    limits: BackendStoreLimits,
) {
    let changed = Arc::new(Notify::new());
    let informer = |resource: &Gvr| {
        let informer = context.informer(resource);
        notify_of_changes(&informer, &changed);
        informer
    };
    let controller = BackendStoreController {
        registries: informer(&RESOURCE_REGISTRIES),
        clusters: informer(&CLUSTERS),
        context: context.clone(),
        options,
        limits,
        changed,
        stores: BTreeMap::new(),
    };
    let shutdown = context.tasks.shutdown().clone();
    context.tasks.spawn(async move {
        shutdown.run_until_triggered(controller.run()).await;
    });
}

fn notify_of_changes(informer: &Informer, changed: &Arc<Notify>) {
    let notify = Arc::clone(changed);
    informer.add_event_handler(move |_| notify.notify_one());
}

struct BackendStoreController {
    context: ControllerContext,
    options: BackendStoreOptions,
    limits: BackendStoreLimits,
    registries: Informer,
    clusters: Informer,
    changed: Arc<Notify>,
    stores: BTreeMap<BackendStoreKey, NamedStore>,
}

impl BackendStoreController {
    async fn run(mut self) {
        self.registries.wait_for_cache_sync().await;
        self.clusters.wait_for_cache_sync().await;
        let mut caches = self.options.caches.0.subscribe();
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
                    self.options.send_fence.clone(),
                    &context.control_plane,
                    Arc::clone(&self.changed),
                    &context.tasks,
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
            let Some(caches) = self.options.caches.0.find(&gvr) else {
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
