//! Keeps the caches in sync with ResourceRegistries and Clusters (Karmada: the controllers of
//! `pkg/search`). It runs in every replica, since every replica serves; only the leader writes to
//! backend stores.

use std::sync::Arc;

use client::{Informer, InformerFactory, ListWatchSelector, TaskGroup};
use flotilla_runtime::ControllerContext;
use karmada_api::resources::{CLUSTERS, RESOURCE_REGISTRIES};
use members::{MemberAccess, MemberClusterManager, MemberConnector, MemberResourceCache};
use tokio::sync::{Notify, watch};
use watchcache::WatchCaches;

use crate::member_resource::CachedForm;
use crate::metrics;
use crate::multi_cluster_cache::{CacheSource, MultiClusterCache};
use crate::resource_caches::SelectedResourceCaches;
use crate::selected_resources::selected_resources;

/// The caches of members. Clones are the same; they are filled once [`start`] has run.
#[derive(Clone)]
pub struct MemberCaches(pub(crate) Arc<SelectedResourceCaches>);

impl MemberCaches {
    /// `watch_caches` are those of the process, with which the caches of members share the memory
    /// for events.
    pub fn new(watch_caches: &Arc<WatchCaches>) -> Self {
        let caches =
            SelectedResourceCaches::new(Arc::clone(watch_caches), CachedForm::Search, None);
        Self(Arc::new(caches))
    }
}

/// What the cache works with beside its context.
pub struct SearchOptions {
    pub connector: Arc<dyn MemberConnector>,
    pub caches: MemberCaches,
    /// While it is false, no member is connected and nothing is cached.
    pub enabled: watch::Receiver<bool>,
}

/// Starts the cache; it stops with the tasks of the context.
pub fn start(context: &ControllerContext, options: SearchOptions) -> Arc<dyn MemberResourceCache> {
    let caches = Arc::clone(&options.caches.0);
    metrics::register(&caches);
    let cache = Arc::new(MultiClusterCache {
        source: CacheSource::Selected(Arc::clone(&caches)),
    });
    let registries = context.informer(&RESOURCE_REGISTRIES);
    let controller = SearchController {
        context: context.clone(),
        options,
        caches,
        changed: notified_by(&registries),
        registries,
        connected: None,
    };
    context.tasks.spawn(controller.run());
    cache
}

/// Notified with every change of an informer's objects.
fn notified_by(informer: &Informer) -> Arc<Notify> {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    informer.add_event_handler(move |_| notify.notify_one());
    changed
}

/// The members while something of them is cached.
pub(crate) struct ConnectedMembers {
    tasks: TaskGroup,
    pub(crate) clusters: Informer,
    pub(crate) manager: MemberClusterManager,
}

struct SearchController {
    context: ControllerContext,
    options: SearchOptions,
    caches: Arc<SelectedResourceCaches>,
    registries: Informer,
    changed: Arc<Notify>,
    connected: Option<ConnectedMembers>,
}

impl SearchController {
    async fn run(mut self) {
        let shutdown = self.context.tasks.shutdown().clone();
        loop {
            let changed = Arc::clone(&self.changed);
            let next = async {
                tokio::select! {
                    () = changed.notified() => {}
                    // Without a sender the state stays.
                    Ok(()) = self.options.enabled.changed() => {}
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
        let registries = self.registries.list();
        let enabled = *self.options.enabled.borrow_and_update();
        if registries.is_empty() || !enabled {
            self.disconnect().await;
            return;
        }
        let connected = match &mut self.connected {
            Some(connected) => connected,
            none => none.insert(ConnectedMembers::start(
                &self.context,
                &self.options.connector,
                &self.changed,
            )),
        };
        connected.manager.wait_for_cache_sync().await;
        let selected = selected_resources(&registries, &connected.clusters.list());
        let api = |cluster: &str| connected.manager.api(cluster);
        self.caches.update(&selected, &api).await;
    }

    /// Without a registry, or disabled, nothing is kept.
    async fn disconnect(&mut self) {
        self.caches.clear().await;
        if let Some(connected) = self.connected.take() {
            connected.stop().await;
        }
    }
}

impl ConnectedMembers {
    /// Every change of a Cluster and of a connection notifies `changed`.
    pub(crate) fn start(
        context: &ControllerContext,
        connector: &Arc<dyn MemberConnector>,
        changed: &Arc<Notify>,
    ) -> Self {
        let tasks = context.tasks.child();
        let informers = InformerFactory::new(&tasks);
        let host = &context.control_plane;
        let connector = Arc::clone(connector);
        let manager = MemberClusterManager::start(Arc::clone(host), &informers, connector, &tasks);
        let clusters = informers.get(host, &ListWatchSelector::all(&CLUSTERS));
        let notify = Arc::clone(changed);
        clusters.add_event_handler(move |_| notify.notify_one());
        let notify = Arc::clone(changed);
        manager.on_connection_change(move |_, _| notify.notify_one());
        Self {
            tasks,
            clusters,
            manager,
        }
    }

    pub(crate) async fn stop(self) {
        self.manager.close().await;
        self.tasks.stop().await;
    }
}
