//! The registry: its state, and the task that keeps the resource table in sync with the
//! CRDs. The verbs of the API are in `create`, `read`, `update` and `delete`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use admission::Chain;
use admission::webhooks::{Namespaces, Webhooks};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use client::At;
use machinery::time::{Clock, SystemClock, rfc3339_seconds};
use machinery::{FailureLog, Gvr, Object, Status};
use parking_lot::Mutex;
use serde_json::Value;
use storage::Store;
use tokio::sync::watch;
use watchcache::{Cache, Filter, Freshness, Hub, ListRequest, Start, WatchRequest};

use crate::claims::UnheldClaims;
use crate::custom::{self, Customs};
use crate::figures::{Figures, read};
use crate::request::Ctx;
use crate::strategy::services::Allocator;
use crate::table::{Row, Table, catalog_rows};

/// Handles a create that stores nothing, such as `serviceaccounts/token` and reviews.
#[async_trait]
pub trait Creator: Send + Sync {
    /// Returns the complete response object. `parent` is the named object, for a create
    /// of a subresource.
    async fn create(
        &self,
        ctx: &Ctx,
        at: At<'_>,
        body: Value,
        parent: Option<&Object>,
    ) -> Result<Value, Status>;
}

/// [`CreateHandler`]s by resource and subresource (empty: the resource itself).
pub type Creators = HashMap<(Gvr, &'static str), Arc<dyn Creator>>;

/// Answers GETs of paths outside of the resources, such as `/version`.
pub type Raw = Arc<dyn Fn(&str) -> Option<Bytes> + Send + Sync>;

/// The dependencies of a registry.
pub struct Options {
    pub clock: Arc<dyn Clock>,
    pub chain: Arc<Chain>,
    pub creators: Creators,
    pub raw: Raw,
    /// Whether an API group is served; a simulated member does not serve Karmada's.
    pub serves: fn(&str) -> bool,
    /// Whether other processes may write to the same store.
    pub shared_store: bool,
    /// Where the metrics of store and caches are registered.
    pub metrics: flotilla_metrics::Registry,
    /// Looks up namespaces elsewhere, if they are not in this store.
    pub namespaces: Option<Arc<dyn Namespaces>>,
    /// The webhooks of the host cluster, called in addition to the chain.
    pub webhooks: Option<Arc<Webhooks>>,
}

impl Options {
    /// The system clock, no create handlers, no raw paths.
    pub fn new(chain: Arc<Chain>) -> Self {
        Self {
            clock: Arc::new(SystemClock),
            chain,
            creators: HashMap::new(),
            raw: Arc::new(|_| None),
            serves: |_| true,
            shared_store: false,
            metrics: flotilla_metrics::Registry::new(),
            namespaces: None,
            webhooks: None,
        }
    }
}

/// The API as a library.
pub struct Registry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) options: Options,
    pub(crate) services: Allocator,
    pub(crate) unheld_claims: UnheldClaims,
    namespaces: Arc<Cache>,
    table: ArcSwap<Table>,
    changed: watch::Sender<u64>,
    builtin: Vec<Arc<Row>>,
    customs: Mutex<Customs>,
    /// Serializes the synchronizations of CRDs.
    syncing: tokio::sync::Mutex<()>,
    crds: Arc<Cache>,
    pub(crate) figures: Figures,
}

pub(crate) const NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
const NAMESPACES_PREFIX: &str = "/registry/namespaces/";
const CRDS_PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

impl Registry {
    /// Creates a registry over a store and its caches. Does no I/O.
    pub fn new(store: Arc<dyn Store>, hub: Arc<Hub>, options: Options) -> Arc<Self> {
        let builtin = catalog_rows(&hub, options.serves);
        let registry = Arc::new(Self {
            figures: Figures::new(&options.metrics),
            table: ArcSwap::from_pointee(Table::new(builtin.clone(), 1)),
            changed: watch::Sender::new(1),
            namespaces: hub.resource(NAMESPACES_PREFIX),
            crds: hub.resource(CRDS_PREFIX),
            store,
            hub,
            options,
            services: Allocator::default(),
            unheld_claims: UnheldClaims::default(),
            builtin,
            customs: Mutex::default(),
            syncing: tokio::sync::Mutex::default(),
        });
        read(&registry.options.metrics, &registry);
        registry
    }

    /// The current resource table.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// The generation of the table, which changes with its resources.
    pub fn tables(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A namespace, from this store or from where namespaces are.
    pub(crate) async fn namespace(&self, name: &str) -> Result<Option<Object>, Status> {
        if let Some(elsewhere) = &self.options.namespaces {
            return elsewhere.find(name).await;
        }
        let cached = self.namespaces.get(name, Freshness::Any).await;
        if let Some(found) = cached.map_err(|e| e.status())? {
            return Ok(Some(found));
        }
        let newest = self.namespaces.get(name, Freshness::Newest).await;
        newest.map_err(|e| e.status())
    }

    /// Answers a GET of a path outside of the resources.
    pub(crate) fn raw(&self, path: &str) -> Option<Bytes> {
        (self.options.raw)(path)
    }

    pub(crate) fn now(&self) -> String {
        rfc3339_seconds(self.options.clock.now())
    }

    /// A served resource, or the 404 of an unknown path.
    pub(crate) fn row(&self, gvr: &Gvr) -> Result<Arc<Row>, Status> {
        self.table.load().find(gvr).ok_or_else(Status::no_such_path)
    }

    /// A served resource, or the 404 of an unknown path. If other processes write to the
    /// same store, a client may know a CRD from one of them before this process does; so
    /// CRDs are synchronized before the 404.
    pub async fn served(&self, gvr: &Gvr) -> Result<Arc<Row>, Status> {
        match self.row(gvr) {
            Err(_) if self.options.shared_store && gvr.group.contains('.') => {
                self.sync_crds().await?;
                self.row(gvr)
            }
            known => known,
        }
    }

    /// Keeps the resources of CRDs in sync until `shutdown` resolves.
    pub async fn run(self: Arc<Self>, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.follow_crds() => {}
        }
    }

    async fn follow_crds(&self) {
        let failures = FailureLog::new();
        loop {
            if let Err(why) = self.follow_crds_once(&failures).await {
                if failures.record_failure("follow", &why.to_string()) {
                    tracing::warn!(%why, "failed to watch CustomResourceDefinitions");
                }
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        }
    }

    async fn follow_crds_once(&self, failures: &FailureLog) -> Result<(), Status> {
        let request = WatchRequest {
            filter: Filter::default(),
            start: Start::Now(Freshness::Newest),
            bookmarks: false,
            deadline: None,
        };
        let mut watcher = self.crds.watch(request).await.map_err(|e| e.status())?;
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
        let _one = self.syncing.lock().await;
        let request = ListRequest {
            filter: Filter::default(),
            at: watchcache::At::Newest,
            limit: 0,
        };
        let crds = self.crds.list(request).await.map_err(|e| e.status())?;
        let closed = {
            let mut customs = self.customs.lock();
            let outcome = custom::sync(&mut customs, &crds.items, &self.builtin, &self.hub);
            if outcome.changed {
                let mut rows = self.builtin.clone();
                rows.extend(customs.values().flat_map(|c| &c.rows).cloned());
                let generation = self.table.load().generation() + 1;
                self.table.store(Arc::new(Table::new(rows, generation)));
                self.changed.send_replace(generation);
            }
            outcome.closed
        };
        for prefix in closed {
            self.hub.remove(&prefix).await;
        }
        Ok(())
    }
}
