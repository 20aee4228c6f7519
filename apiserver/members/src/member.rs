//! One connected member cluster, for as long as its endpoint is unchanged.

use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Change, Informer, Informers, Select, Tasks};
use machinery::Gvr;
use openapi::karmada::labels::{MANAGED, MANAGED_VALUE};
use parking_lot::Mutex;

use crate::endpoint::{Connector, Endpoint};
use crate::fold::Fold;
use crate::limit::Limited;
use crate::nodes::Nodes;
use crate::quotas::{Quota, Quotas};
use crate::sums::{Model, Summary};

type Handler = Arc<dyn Fn(&str, &Gvr, &Change<'_>) + Send + Sync>;

/// The handlers of changes of managed objects, shared by all members.
#[derive(Clone, Default)]
pub(crate) struct Handlers(Arc<Mutex<Vec<Handler>>>);

/// What is tracked in members besides totals. Each option costs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Single nodes.
    pub nodes: bool,
    pub quotas: bool,
}

/// A connected member. Closing it ends everything it started.
pub struct Member {
    endpoint: Endpoint,
    api: Arc<dyn Api>,
    tasks: Tasks,
    informers: Informers,
    managed_informers: Mutex<AHashMap<Gvr, Informer>>,
    detail: Detail,
    aggregator: Mutex<Option<Fold>>,
    quotas: Mutex<Option<Quotas>>,
    handlers: Handlers,
}

impl Member {
    pub(crate) fn connect(
        endpoint: Endpoint,
        connector: &dyn Connector,
        handlers: &Handlers,
        detail: Detail,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, String> {
        let tasks = tasks.child();
        let api = connector.connect(&endpoint, &tasks)?;
        Ok(Arc::new(Self {
            api: Arc::new(Limited::new(&endpoint.cluster, api)),
            informers: Informers::new(&tasks),
            managed_informers: Mutex::default(),
            detail,
            aggregator: Mutex::default(),
            quotas: Mutex::default(),
            handlers: handlers.clone(),
            endpoint,
            tasks,
        }))
    }

    pub fn name(&self) -> &str {
        &self.endpoint.cluster
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The member's API, with a concurrency limit that adapts to the member.
    pub fn api(&self) -> &Arc<dyn Api> {
        &self.api
    }

    /// The informer of a resource's managed objects, started by the first call.
    pub fn managed(&self, resource: &Gvr) -> Informer {
        // Both locks are held, so that no handler is attached twice or never.
        let handlers = self.handlers.0.lock();
        let mut managed = self.managed_informers.lock();
        if let Some(informer) = managed.get(resource) {
            return informer.clone();
        }
        let informer = self.informers.get(&self.api, &select(resource));
        managed.insert(resource.clone(), informer.clone());
        for handler in &*handlers {
            self.attach(&informer, handler);
        }
        informer
    }

    /// The same informer, if it was started.
    pub fn followed(&self, resource: &Gvr) -> Option<Informer> {
        self.managed_informers.lock().get(resource).cloned()
    }

    /// Stops the informer of a resource, until [`Self::managed_informer`] is called
    /// again.
    pub fn unfollow(&self, resource: &Gvr) {
        let _nobody_is_attached = self.handlers.0.lock();
        let mut managed = self.managed_informers.lock();
        if managed.remove(resource).is_none() {
            return;
        }
        if let Some(ending) = self.informers.release(&self.api, &select(resource)) {
            self.tasks.spawn(async move { ending.join().await });
        }
    }

    fn attach(&self, informer: &Informer, handler: &Handler) {
        let (name, handler) = (self.endpoint.cluster.clone(), Arc::clone(handler));
        let resource = informer.resource().clone();
        informer.on_change(move |change| handler(&name, &resource, change));
    }

    pub(crate) fn resources(&self) -> Vec<Gvr> {
        self.managed_informers.lock().keys().cloned().collect()
    }

    /// The totals of nodes and pods, tracked from the first call on; `None` until both
    /// were listed.
    pub fn summary(&self) -> Option<Summary> {
        self.fold().summary()
    }

    /// The number of nodes in each grade of the resource models; `None` until nodes and
    /// pods were listed.
    pub fn modelings(&self, models: &[Model]) -> Option<Vec<i64>> {
        self.fold().modelings(models)
    }

    /// Reads single nodes; `None` if they are not tracked, and until nodes and pods were
    /// listed. The totals are locked meanwhile.
    pub fn nodes<T>(&self, read: impl FnOnce(Nodes<'_>) -> T) -> Option<T> {
        if self.detail.nodes {
            self.fold().nodes(read)
        } else {
            None
        }
    }

    /// The ResourceQuotas of a namespace; `None` if they are not tracked, and until they
    /// were listed.
    pub fn quotas(&self, namespace: &str) -> Option<Vec<Arc<Quota>>> {
        if !self.detail.quotas {
            return None;
        }
        let mut quotas = self.quotas.lock();
        let quotas = quotas.get_or_insert_with(|| Quotas::start(&self.api, &self.tasks));
        quotas.of(namespace)
    }

    fn fold(&self) -> Fold {
        let mut fold = self.aggregator.lock();
        fold.get_or_insert_with(|| Fold::start(&self.api, &self.tasks, self.detail.nodes))
            .clone()
    }

    pub(crate) fn is_folding(&self) -> bool {
        self.aggregator.lock().is_some()
    }

    /// Stops and joins everything started here.
    pub(crate) async fn close(&self) {
        self.tasks.stop().await;
    }
}

fn select(resource: &Gvr) -> Select {
    Select::all(resource).labels(format!("{MANAGED}={MANAGED_VALUE}"))
}

impl Handlers {
    /// Adds a handler, also to the informers already started.
    pub(crate) fn add(&self, handler: Handler, members: &[Arc<Member>]) {
        let mut handlers = self.0.lock();
        for member in members {
            for informer in member.managed_informers.lock().values() {
                member.attach(informer, &handler);
            }
        }
        handlers.push(handler);
    }
}
