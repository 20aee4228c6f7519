//! The informers of EndpointSlices, and of ServiceExports if there are, in one namespace of a member.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::{Api, Informer, InformerFactory, ListWatchSelector, TaskGroup};
use machinery::Object;

use crate::slice_fields::{comes_from_other_cluster, service_name};
use crate::{ENDPOINT_SLICES, SERVICE_EXPORTS};

const SERVICE_INDEX: &str = "service";

/// The informers and the tasks that run them. Clones are the same.
#[derive(Clone)]
pub(super) struct NamespaceInformers {
    api: Arc<dyn Api>,
    namespace: String,
    /// `None` where nothing was exported; the member need not serve the kind.
    exports: Option<Informer>,
    slices: Informer,
    /// Ends its informers when it is dropped.
    _factory: InformerFactory,
    tasks: TaskGroup,
}

impl NamespaceInformers {
    /// `on_change`, which may not block, is called with the name of each Service whose export or
    /// slices change. Once all are listed, it is called for all exported Services and `services`.
    pub(super) fn start(
        api: &Arc<dyn Api>,
        namespace: &str,
        watch_exports: bool,
        services: BTreeSet<String>,
        on_change: impl Fn(&str) + Clone + Send + Sync + 'static,
        tasks: &TaskGroup,
    ) -> Self {
        let tasks = tasks.child();
        let factory = InformerFactory::new(&tasks);
        let informer = |resource| {
            let select = ListWatchSelector::all(resource).namespace(namespace);
            factory.get(api, &select)
        };
        let exports = watch_exports.then(|| informer(&SERVICE_EXPORTS));
        let slices = informer(&ENDPOINT_SLICES);
        let of_namespace = namespace.to_owned();
        slices.add_index(SERVICE_INDEX, move |slice| {
            // The member may answer with objects that were not asked for.
            let own = Some(slice).filter(|slice| {
                slice.namespace() == of_namespace && !comes_from_other_cluster(slice)
            });
            let service = own.and_then(service_name).map(str::to_owned);
            service.into_iter().collect()
        });
        let changed = on_change.clone();
        if let Some(exports) = &exports {
            exports.add_event_handler(move |change| changed(change.object().name()));
        }
        let changed = on_change.clone();
        slices.add_event_handler(move |change| {
            let before = change.old.and_then(service_name);
            let after = change.new.and_then(service_name);
            let after = after.filter(|after| Some(*after) != before);
            before.into_iter().chain(after).for_each(&changed);
        });
        let started = Self {
            api: Arc::clone(api),
            namespace: namespace.to_owned(),
            exports,
            slices,
            _factory: factory,
            tasks,
        };
        started.enqueue_when_synced(services, on_change);
        started
    }

    /// Calls `on_change` for all exported Services and `services` once all objects are listed.
    fn enqueue_when_synced(
        &self,
        services: BTreeSet<String>,
        on_change: impl Fn(&str) + Send + Sync + 'static,
    ) {
        let (exports, slices) = (self.exports.clone(), self.slices.clone());
        let shutdown = self.tasks.shutdown().clone();
        self.tasks.spawn(async move {
            let synced = async {
                if let Some(exports) = &exports {
                    exports.wait_for_cache_sync().await;
                }
                slices.wait_for_cache_sync().await;
            };
            if shutdown.run_until_triggered(synced).await.is_some() {
                for export in exports.iter().flat_map(Informer::list) {
                    on_change(export.name());
                }
                services.iter().for_each(|service| on_change(service));
            }
        });
    }

    pub(super) fn uses(&self, api: &Arc<dyn Api>) -> bool {
        Arc::ptr_eq(&self.api, api)
    }

    pub(super) fn watches_exports(&self) -> bool {
        self.exports.is_some()
    }

    pub(super) fn has_synced(&self) -> bool {
        self.exports.as_ref().is_none_or(Informer::has_synced) && self.slices.has_synced()
    }

    /// Whether the Service is exported; `None` if exports are not watched.
    pub(super) fn is_exported(&self, service: &str) -> Option<bool> {
        let exports = self.exports.as_ref()?;
        Some(exports.get(&self.namespace, service).is_some())
    }

    /// The slices of a Service of this cluster.
    pub(super) fn slices(&self, service: &str) -> Vec<Object> {
        self.slices.by_index(SERVICE_INDEX, service)
    }

    pub(super) async fn stop(self) {
        self.tasks.stop().await;
    }
}
