//! The registry: its state, and the task that keeps the resource table in sync with the
//! CRDs. The verbs of the API are in `create`, `read`, `update` and `delete`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use admission::webhooks::NamespaceLookup;
use admission::{AdmissionChain, DynamicAdmission};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use client::ResourcePath;
use client::webhook::WebhookClient;
use machinery::time::{Clock, SystemClock, rfc3339_seconds};
use machinery::{FailureLogLimiter, Gvr, Object, Status};
use parking_lot::Mutex;
use serde_json::Value;
use storage::Store;
use tokio::sync::watch;
use watchcache::{
    Cacher, CacherListRequest, CacherWatchRequest, ReadFreshness, SelectionPredicate, WatchCaches,
    WatchStart,
};

use crate::api_services::{API_SERVICES, LocalApiServices};
use crate::component_statuses::{COMPONENT_STATUSES, ComponentStatuses, StoreHealthProbe};
use crate::computed_resources::ComputedResourceProviders;
use crate::custom_resources::{self, ConversionWebhookClient, CustomResourceOptions, ServedCrds};
use crate::metrics::StoreCallMetricFamilies;
use crate::request::RequestContext;
use crate::resource_table::{DynamicApiGroup, ResourceInfo, ResourceTable, catalog_resources};
use crate::strategy::services::ServiceAllocator;
use crate::unused_claims::UnusedAddressClaims;

/// Handles a create that stores nothing, such as `serviceaccounts/token` and reviews.
#[async_trait]
pub trait UnstoredCreateHandler: Send + Sync {
    /// Returns the complete response object. `parent` is the named object, for a create
    /// of a subresource.
    async fn create(
        &self,
        ctx: &RequestContext,
        path: ResourcePath<'_>,
        body: Value,
        parent: Option<&Object>,
    ) -> Result<Value, Status>;
}

/// [`UnstoredCreateHandler`]s by resource and subresource (empty: the resource itself).
pub type UnstoredCreateHandlers = HashMap<(Gvr, &'static str), Arc<dyn UnstoredCreateHandler>>;

/// Answers GETs of paths outside of the resources, such as `/version`.
pub type RawPathHandler = Arc<dyn Fn(&str) -> Option<Bytes> + Send + Sync>;

/// The dependencies of a registry.
pub struct RegistryOptions {
    pub clock: Arc<dyn Clock>,
    pub admission_chain: Arc<AdmissionChain>,
    pub create_handlers: UnstoredCreateHandlers,
    /// The providers of kinds that are computed; those without one are not served.
    pub computed_resources: ComputedResourceProviders,
    /// The groups that are served without entries in the resource table.
    pub dynamic_groups: &'static [DynamicApiGroup],
    pub raw_path_handler: RawPathHandler,
    /// Whether an API group is served; a simulated member does not serve Karmada's.
    pub serves_group: fn(&str) -> bool,
    /// Whether other processes may write to the same store.
    pub shared_store: bool,
    /// Where the metrics of store and caches are registered.
    pub metrics: flotilla_metrics::MetricsRegistry,
    /// Looks up namespaces elsewhere, if they are not in this store.
    pub namespace_lookup: Option<Arc<dyn NamespaceLookup>>,
    /// Decides what the writers of roles and bindings may grant; without it, only
    /// superusers may write them.
    pub role_escalation: Option<auth::RoleEscalationCheck>,
    /// Whether the user who creates the roles of agents has the rights that Karmada gives it.
    pub insecure_agent_registration: bool,
    /// The health that the ComponentStatus of the store reports.
    pub store_health: StoreHealthProbe,
}

impl RegistryOptions {
    /// The system clock, no create handlers, no raw paths.
    pub fn new(admission_chain: Arc<AdmissionChain>) -> Self {
        Self {
            clock: Arc::new(SystemClock),
            admission_chain,
            create_handlers: HashMap::new(),
            computed_resources: HashMap::new(),
            dynamic_groups: &[],
            raw_path_handler: Arc::new(|_| None),
            serves_group: |_| true,
            shared_store: false,
            metrics: flotilla_metrics::MetricsRegistry::new(),
            namespace_lookup: None,
            role_escalation: None,
            insecure_agent_registration: false,
            store_health: Arc::new(|| Ok(())),
        }
    }
}

/// Adds the providers that every registry has.
fn with_own_providers(
    mut providers: ComputedResourceProviders,
    store_health: &StoreHealthProbe,
) -> ComputedResourceProviders {
    let statuses = ComponentStatuses {
        store_health: Arc::clone(store_health),
    };
    providers.insert(API_SERVICES.clone(), Arc::new(LocalApiServices));
    providers.insert(COMPONENT_STATUSES.clone(), Arc::new(statuses));
    providers
}

/// The API as a library.
pub struct Registry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) watch_caches: Arc<WatchCaches>,
    pub(crate) options: RegistryOptions,
    pub(crate) computed_resources: ComputedResourceProviders,
    /// Policies and webhooks, which run in addition to the chain.
    pub(crate) dynamic_admission: OnceLock<Arc<DynamicAdmission>>,
    pub(crate) service_allocator: ServiceAllocator,
    pub(crate) unused_address_claims: UnusedAddressClaims,
    namespace_cacher: Arc<Cacher>,
    table: ArcSwap<ResourceTable>,
    table_generation: watch::Sender<u64>,
    pub(crate) builtin: Vec<Arc<ResourceInfo>>,
    pub(crate) served_crds: Mutex<ServedCrds>,
    /// Serializes the synchronizations of CRDs, and the writes that create them.
    crd_sync_lock: tokio::sync::Mutex<()>,
    crd_cacher: Arc<Cacher>,
    conversion_webhook_client: ConversionWebhookClient,
    pub(crate) store_metrics: StoreCallMetricFamilies,
}

/// Held while the resources of CRDs are synchronized.
pub(crate) struct CrdSyncLock<'a> {
    _guard: tokio::sync::MutexGuard<'a, ()>,
}

pub(crate) const NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
const NAMESPACES_PREFIX: &str = "/registry/namespaces/";
const CRDS_PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

impl Registry {
    /// Creates a registry over a store and its caches. Does no I/O.
    pub fn new(
        store: Arc<dyn Store>,
        watch_caches: Arc<WatchCaches>,
        mut options: RegistryOptions,
    ) -> Arc<Self> {
        let providers = std::mem::take(&mut options.computed_resources);
        let providers = with_own_providers(providers, &options.store_health);
        let builtin = catalog_resources(&watch_caches, |kind| {
            let is_provided = !kind.computed || providers.contains_key(&kind.gvr);
            is_provided && (options.serves_group)(&kind.gvr.group)
        });
        let registry = Arc::new(Self {
            store_metrics: StoreCallMetricFamilies::new(&options.metrics),
            table: ArcSwap::from_pointee(ResourceTable::new(
                builtin.clone(),
                options.dynamic_groups,
                1,
            )),
            table_generation: watch::Sender::new(1),
            namespace_cacher: watch_caches.cacher(NAMESPACES_PREFIX),
            crd_cacher: watch_caches.cacher(CRDS_PREFIX),
            store,
            watch_caches,
            options,
            computed_resources: providers,
            dynamic_admission: OnceLock::new(),
            service_allocator: ServiceAllocator::default(),
            unused_address_claims: UnusedAddressClaims::default(),
            builtin,
            served_crds: Mutex::default(),
            crd_sync_lock: tokio::sync::Mutex::default(),
            conversion_webhook_client: ConversionWebhookClient::default(),
        });
        registry.register_cache_metrics();
        registry
    }

    /// Sets the policies and webhooks that run in addition to the chain; they may read from
    /// this registry. Later calls have no effect.
    pub fn set_dynamic_admission(&self, admission: Arc<DynamicAdmission>) {
        // A second one would have the same policies and webhooks.
        let _ = self.dynamic_admission.set(admission);
    }

    /// Sets the client of conversion webhooks, which may read Services from this registry.
    /// Later calls have no effect.
    pub fn set_conversion_webhook_client(&self, client: Arc<dyn WebhookClient>) {
        // A second client would call the same webhooks.
        let _ = self.conversion_webhook_client.set(client);
    }

    /// The current resource table.
    pub fn table(&self) -> Arc<ResourceTable> {
        self.table.load_full()
    }

    /// The generation of the table, which changes with its resources.
    pub fn subscribe_table_generation(&self) -> watch::Receiver<u64> {
        self.table_generation.subscribe()
    }

    /// A namespace, from this store or from where namespaces are.
    pub(crate) async fn get_namespace(&self, name: &str) -> Result<Option<Object>, Status> {
        if let Some(lookup) = &self.options.namespace_lookup {
            return lookup.get_namespace(name).await;
        }
        let cached = self.namespace_cacher.get_if_filled(name);
        if let Some(object) = cached.map_err(|e| e.status())? {
            return Ok(Some(object));
        }
        let newest = self.namespace_cacher.get(name, ReadFreshness::Newest).await;
        newest.map_err(|e| e.status())
    }

    /// Answers a GET of a path outside of the resources.
    pub(crate) fn get_raw(&self, path: &str) -> Option<Bytes> {
        (self.options.raw_path_handler)(path)
    }

    pub(crate) fn now(&self) -> String {
        rfc3339_seconds(self.options.clock.now())
    }

    /// A served resource, or the 404 of an unknown path.
    pub(crate) fn resource_info(&self, gvr: &Gvr) -> Result<Arc<ResourceInfo>, Status> {
        self.table
            .load()
            .find(gvr)
            .ok_or_else(Status::path_not_found)
    }

    /// A served resource, or the 404 of an unknown path. If other processes write to the
    /// same store, a client may know a CRD from one of them before this process does; so
    /// CRDs are synchronized before the 404.
    pub async fn resource_info_synced(&self, gvr: &Gvr) -> Result<Arc<ResourceInfo>, Status> {
        match self.resource_info(gvr) {
            Err(_) if self.options.shared_store && gvr.group.contains('.') => {
                self.sync_crds().await?;
                self.resource_info(gvr)
            }
            resource_info => resource_info,
        }
    }

    /// Keeps the resources of CRDs in sync until `shutdown` resolves.
    pub async fn run(self: Arc<Self>, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.watch_crds() => {}
        }
    }

    async fn watch_crds(&self) {
        let failures = FailureLogLimiter::new();
        loop {
            if let Err(e) = self.watch_crds_once(&failures).await {
                if failures.record_failure("follow", &e.to_string()) {
                    tracing::warn!(why = %e, "failed to watch CustomResourceDefinitions");
                }
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        }
    }

    async fn watch_crds_once(&self, failures: &FailureLogLimiter) -> Result<(), Status> {
        let request = CacherWatchRequest {
            filter: SelectionPredicate::default(),
            start: WatchStart::Now(ReadFreshness::Newest),
            bookmarks: false,
            deadline: None,
        };
        let mut watcher = self
            .crd_cacher
            .watch(request)
            .await
            .map_err(|e| e.status())?;
        self.sync_crds().await?;
        if failures.record_success("follow") {
            tracing::info!("watching CustomResourceDefinitions again");
        }
        while let Some(item) = watcher.next().await {
            item.map_err(|e| e.status())?;
            // One synchronization covers all events that are pending.
            while watcher.try_next().is_some() {}
            self.sync_crds().await?;
        }
        Ok(())
    }

    /// Synchronizes the resources of CRDs with the CRDs stored now.
    pub async fn sync_crds(&self) -> Result<(), Status> {
        let lock = self.lock_crd_sync().await;
        self.sync_crds_locked(&lock).await
    }

    pub(crate) async fn lock_crd_sync(&self) -> CrdSyncLock<'_> {
        CrdSyncLock {
            _guard: self.crd_sync_lock.lock().await,
        }
    }

    /// [`Self::sync_crds`] for the holder of the lock.
    pub(crate) async fn sync_crds_locked(&self, _: &CrdSyncLock<'_>) -> Result<(), Status> {
        let request = CacherListRequest {
            filter: SelectionPredicate::default(),
            revision: watchcache::ListRevision::Newest,
            limit: 0,
        };
        let crds = self
            .crd_cacher
            .list(request)
            .await
            .map_err(|e| e.status())?;
        let closed_ids = {
            let mut customs = self.served_crds.lock();
            let outcome = custom_resources::sync_definitions(
                &mut customs,
                &crds.items,
                &CustomResourceOptions {
                    builtin: &self.builtin,
                    caches: &self.watch_caches,
                    webhook_client: &self.conversion_webhook_client,
                    revision: crds.revision,
                },
            );
            if outcome.changed {
                let mut rows = self.builtin.clone();
                rows.extend(customs.values().flat_map(|c| &c.resources).cloned());
                let generation = self.table.load().generation() + 1;
                let dynamic_groups = self.options.dynamic_groups;
                let table = ResourceTable::new(rows, dynamic_groups, generation);
                self.table.store(Arc::new(table));
                self.table_generation.send_replace(generation);
            }
            outcome.closed_caches
        };
        for id in closed_ids {
            self.watch_caches.remove(&id).await;
        }
        Ok(())
    }
}
