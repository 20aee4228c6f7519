//! One member, as long as its endpoint stays what it is.

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

/// Who wants to know of changes in members; shared by all of them.
#[derive(Clone, Default)]
pub(crate) struct Handlers(Arc<Mutex<Vec<Handler>>>);

/// What members tell beside sums. Each costs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Nodes one by one.
    pub nodes: bool,
    pub quotas: bool,
}

/// A connected member. What it started ends when it is closed.
pub struct Member {
    endpoint: Endpoint,
    api: Arc<dyn Api>,
    tasks: Tasks,
    informers: Informers,
    managed: Mutex<AHashMap<Gvr, Informer>>,
    detail: Detail,
    fold: Mutex<Option<Fold>>,
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
            managed: Mutex::default(),
            detail,
            fold: Mutex::default(),
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

    /// The member's API; the number of calls at once adapts to it.
    pub fn api(&self) -> &Arc<dyn Api> {
        &self.api
    }

    /// The managed objects of a resource, followed from the first call on.
    pub fn managed(&self, resource: &Gvr) -> Informer {
        // One lock over both, so that no handler is attached twice or never.
        let handlers = self.handlers.0.lock();
        let mut managed = self.managed.lock();
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

    /// The same, if they are followed.
    pub fn followed(&self, resource: &Gvr) -> Option<Informer> {
        self.managed.lock().get(resource).cloned()
    }

    /// Follows a resource no longer, until [`Self::managed`] is called again.
    pub fn unfollow(&self, resource: &Gvr) {
        let _nobody_is_attached = self.handlers.0.lock();
        let mut managed = self.managed.lock();
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
        self.managed.lock().keys().cloned().collect()
    }

    /// Nodes and pods in sum, followed from the first call on; `None` until both
    /// were listed.
    pub fn summary(&self) -> Option<Summary> {
        self.fold().summary()
    }

    /// The number of nodes in each grade; `None` until nodes and pods were listed.
    pub fn modelings(&self, models: &[Model]) -> Option<Vec<i64>> {
        self.fold().modelings(models)
    }

    /// Reads nodes one by one; `None` where they are not told so, and until nodes and
    /// pods were listed. Nothing is counted while they are read.
    pub fn nodes<T>(&self, read: impl FnOnce(Nodes<'_>) -> T) -> Option<T> {
        if self.detail.nodes {
            self.fold().nodes(read)
        } else {
            None
        }
    }

    /// The quotas of a namespace; `None` where they are not told, and until they were
    /// listed.
    pub fn quotas(&self, namespace: &str) -> Option<Vec<Arc<Quota>>> {
        if !self.detail.quotas {
            return None;
        }
        let mut quotas = self.quotas.lock();
        let quotas = quotas.get_or_insert_with(|| Quotas::start(&self.api, &self.tasks));
        quotas.of(namespace)
    }

    fn fold(&self) -> Fold {
        let mut fold = self.fold.lock();
        fold.get_or_insert_with(|| Fold::start(&self.api, &self.tasks, self.detail.nodes))
            .clone()
    }

    pub(crate) fn is_folding(&self) -> bool {
        self.fold.lock().is_some()
    }

    /// Ends and joins everything that was started here.
    pub(crate) async fn close(&self) {
        self.tasks.stop().await;
    }
}

fn select(resource: &Gvr) -> Select {
    Select::all(resource).labels(format!("{MANAGED}={MANAGED_VALUE}"))
}

impl Handlers {
    /// Adds a handler and attaches it to what is followed already.
    pub(crate) fn add(&self, handler: Handler, members: &[Arc<Member>]) {
        let mut handlers = self.0.lock();
        for member in members {
            for informer in member.managed.lock().values() {
                member.attach(informer, &handler);
            }
        }
        handlers.push(handler);
    }
}
