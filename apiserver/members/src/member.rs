//! One connected member cluster, for as long as its endpoint is unchanged.

use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Informer, InformerEvent, InformerFactory, ListWatchSelector, TaskGroup};
use karmada_api::well_known_keys::{MANAGED, MANAGED_VALUE};
use machinery::{Gvr, Object, SimilarObjects};
use parking_lot::Mutex;

use crate::aggregator::NodePodAggregator;
use crate::concurrency_limit::ConcurrencyLimitedApi;
use crate::endpoint::{MemberConnector, MemberEndpoint};
use crate::node_infos::NodeInfos;
use crate::resource_quotas::{MemberResourceQuota, ResourceQuotaCache};
use crate::resource_totals::{ClusterResourceSummary, ResourceModelGradeMinimums};

/// The managed objects of all members: those of one template resemble each other.
static MANAGED_OBJECTS: SimilarObjects = SimilarObjects::new();

type ManagedObjectHandler = Arc<dyn Fn(&str, &Gvr, &InformerEvent<'_>) + Send + Sync>;

/// The handlers of changes of managed objects, shared by all members.
#[derive(Clone, Default)]
pub(crate) struct ManagedObjectHandlers(Arc<Mutex<Vec<ManagedObjectHandler>>>);

/// The objects that are tracked in members besides totals. Each option costs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTrackingOptions {
    /// Single nodes.
    pub individual_nodes: bool,
    pub quotas: bool,
}

/// The tracked objects, and the tasks that track them, which can be stopped alone.
struct RunningTracker<T> {
    tracker: T,
    tasks: TaskGroup,
}

/// A connected member. Closing it ends everything it started.
pub struct MemberCluster {
    endpoint: MemberEndpoint,
    api: Arc<dyn Api>,
    tasks: TaskGroup,
    informers: InformerFactory,
    managed_informers: Mutex<AHashMap<Gvr, Informer>>,
    tracking: Mutex<MemberTrackingOptions>,
    aggregator: Mutex<Option<RunningTracker<NodePodAggregator>>>,
    quotas: Mutex<Option<RunningTracker<ResourceQuotaCache>>>,
    handlers: ManagedObjectHandlers,
}

impl MemberCluster {
    pub(crate) fn connect(
        endpoint: MemberEndpoint,
        connector: &dyn MemberConnector,
        handlers: &ManagedObjectHandlers,
        detail: MemberTrackingOptions,
        tasks: &TaskGroup,
    ) -> Result<Arc<Self>, String> {
        let tasks = tasks.child();
        let api = connector.connect(&endpoint, &tasks)?;
        Ok(Arc::new(Self {
            api: Arc::new(ConcurrencyLimitedApi::new(&endpoint.cluster, api)),
            informers: InformerFactory::new(&tasks),
            managed_informers: Mutex::default(),
            tracking: Mutex::new(detail),
            aggregator: Mutex::default(),
            quotas: Mutex::default(),
            handlers: handlers.clone(),
            endpoint,
            tasks,
        }))
    }

    /// The cluster beside which this process runs, without a control plane: nothing connects
    /// it anew, and it ends with `tasks`.
    pub fn beside(
        name: &str,
        api: &Arc<dyn Api>,
        tracking: MemberTrackingOptions,
        tasks: &TaskGroup,
    ) -> Result<Arc<Self>, String> {
        let api = Arc::clone(api);
        let connector = move |_: &MemberEndpoint, _: &TaskGroup| Ok(Arc::clone(&api));
        let handlers = ManagedObjectHandlers::default();
        let endpoint = MemberEndpoint::beside_agent(name);
        Self::connect(endpoint, &connector, &handlers, tracking, tasks)
    }

    pub fn name(&self) -> &str {
        &self.endpoint.cluster
    }

    pub fn endpoint(&self) -> &MemberEndpoint {
        &self.endpoint
    }

    /// The member's API, with a concurrency limit that adapts to the member.
    pub fn api(&self) -> &Arc<dyn Api> {
        &self.api
    }

    /// The informer of a resource's managed objects, started by the first call.
    pub fn managed_informer(&self, resource: &Gvr) -> Informer {
        // Both locks are held, so that no handler is attached twice or never.
        let handlers = self.handlers.0.lock();
        let mut managed = self.managed_informers.lock();
        if let Some(informer) = managed.get(resource) {
            return informer.clone();
        }
        let group = resource.to_string();
        let share = move |object: Object| {
            let name = format!("{group}/{}", object.meta().key());
            MANAGED_OBJECTS.share(&name, object)
        };
        let selector = managed_selector(resource);
        let informer = self
            .informers
            .get_with_transform(&self.api, &selector, share);
        managed.insert(resource.clone(), informer.clone());
        for handler in &*handlers {
            self.attach_handler(&informer, handler);
        }
        informer
    }

    /// The same informer, if it was started.
    pub fn find_managed_informer(&self, resource: &Gvr) -> Option<Informer> {
        self.managed_informers.lock().get(resource).cloned()
    }

    /// Stops the informer of a resource, until [`Self::managed_informer`] is called
    /// again.
    pub fn stop_managed_informer(&self, resource: &Gvr) {
        let _nobody_is_attached = self.handlers.0.lock();
        let mut managed = self.managed_informers.lock();
        if managed.remove(resource).is_none() {
            return;
        }
        if let Some(ending) = self
            .informers
            .begin_stop_informer(&self.api, &managed_selector(resource))
        {
            self.tasks.spawn(async move { ending.join().await });
        }
    }

    fn attach_handler(&self, informer: &Informer, handler: &ManagedObjectHandler) {
        let (name, handler) = (self.endpoint.cluster.clone(), Arc::clone(handler));
        let resource = informer.resource().clone();
        informer.add_event_handler(move |change| handler(&name, &resource, change));
    }

    pub(crate) fn managed_resources(&self) -> Vec<Gvr> {
        self.managed_informers.lock().keys().cloned().collect()
    }

    /// The totals of nodes and pods, tracked from the first call on; `None` until both
    /// were listed.
    pub fn resource_summary(&self) -> Option<ClusterResourceSummary> {
        self.aggregator().summary()
    }

    /// The number of nodes in each grade of the resource models; `None` until nodes and
    /// pods were listed.
    pub fn allocatable_modelings(&self, models: &[ResourceModelGradeMinimums]) -> Option<Vec<i64>> {
        self.aggregator().allocatable_modelings(models)
    }

    /// Reads single nodes; `None` if they are not tracked, and until nodes and pods were
    /// listed. The totals are locked meanwhile.
    pub fn with_nodes<T>(&self, read: impl FnOnce(NodeInfos<'_>) -> T) -> Option<T> {
        if self.tracking.lock().individual_nodes {
            self.aggregator().with_nodes(read)
        } else {
            None
        }
    }

    /// The ResourceQuotas of a namespace; `None` if they are not tracked, and until they
    /// were listed.
    pub fn quotas(&self, namespace: &str) -> Option<Vec<Arc<MemberResourceQuota>>> {
        if !self.tracking.lock().quotas {
            return None;
        }
        let mut quotas = self.quotas.lock();
        let running = quotas.get_or_insert_with(|| {
            let tasks = self.tasks.child();
            let tracker = ResourceQuotaCache::start(&self.api, &tasks);
            RunningTracker { tracker, tasks }
        });
        running.tracker.in_namespace(namespace)
    }

    /// Changes what is tracked. Nodes and pods are listed again if they are tracked otherwise;
    /// until then their totals are not known.
    pub(crate) fn set_tracking(&self, tracking: MemberTrackingOptions) {
        let before = std::mem::replace(&mut *self.tracking.lock(), tracking);
        if before.individual_nodes != tracking.individual_nodes {
            let mut aggregator = self.aggregator.lock();
            if let Some(replaced) = aggregator.take() {
                *aggregator = Some(self.start_aggregator());
                self.stop_tracker(&replaced.tasks);
            }
        }
        if before.quotas && !tracking.quotas {
            let stopped = self.quotas.lock().take();
            stopped.iter().for_each(|s| self.stop_tracker(&s.tasks));
        }
    }

    fn stop_tracker(&self, tasks: &TaskGroup) {
        let stopping = tasks.clone();
        self.tasks.spawn(async move { stopping.stop().await });
    }

    fn aggregator(&self) -> NodePodAggregator {
        let mut aggregator = self.aggregator.lock();
        let running = aggregator.get_or_insert_with(|| self.start_aggregator());
        running.tracker.clone()
    }

    fn start_aggregator(&self) -> RunningTracker<NodePodAggregator> {
        let tasks = self.tasks.child();
        let individual_nodes = self.tracking.lock().individual_nodes;
        let tracker = NodePodAggregator::start(&self.api, &tasks, individual_nodes);
        RunningTracker { tracker, tasks }
    }

    pub(crate) fn is_aggregating(&self) -> bool {
        self.aggregator.lock().is_some()
    }

    /// Stops and joins everything started here.
    pub(crate) async fn close(&self) {
        self.tasks.stop().await;
    }
}

fn managed_selector(resource: &Gvr) -> ListWatchSelector {
    ListWatchSelector::all(resource).labels(format!("{MANAGED}={MANAGED_VALUE}"))
}

impl ManagedObjectHandlers {
    /// Adds a handler, also to the informers already started.
    pub(crate) fn add(&self, handler: ManagedObjectHandler, members: &[Arc<MemberCluster>]) {
        let mut handlers = self.0.lock();
        for member in members {
            for informer in member.managed_informers.lock().values() {
                member.attach_handler(informer, &handler);
            }
        }
        handlers.push(handler);
    }
}
