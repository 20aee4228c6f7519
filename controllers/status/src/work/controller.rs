//! The controller of Work status: follows Works, the managed objects of members and
//! clusters that become ready; writes `status.manifestStatuses` of Works, the conditions that
//! follow from their health, and events about them.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use client::{Api, Error, Informer, InformerEvent, InvolvedObject};
use controller_context::{PropagationContext, time_until_degraded};
use flotilla_runtime::{
    ClusterLister, ControllerName, EventRecorder, Expectations, ReconcileAction,
    ReconcileReadiness, RestMapper, StatusWriter, Workqueue, run_workers,
};
use interpreter::{InterpreterOperation, InterpreterRuleChange, ResourceInterpreter};
use karmada_api::binding::Condition;
use karmada_api::names::{cluster_of_execution_space, execution_space_name};
use karmada_api::resources::WORKS;
use karmada_api::well_known_keys::{STATUS_COLLECTION, STATUS_COLLECTION_DISABLED};
use karmada_api::work::ManifestStatus;
use machinery::time::Clock;
use machinery::{Gvk, Object};
use members::MemberAccess;
use serde_json::{Value, json};

use super::reflect::{
    ReflectResult, WorkEventToRecord, first_status_delay, interpret, owning_work_key,
    reflect_status,
};
use crate::error::StatusControllersError;
use crate::partial_work::PartialWork;
use crate::write_interval::MIN_WRITE_INTERVAL;

/// Many, because a worker mostly waits for its write, and stores commit in groups.
const WORKERS: usize = 16;
const NAMESPACE_INDEX: &str = "namespace";
/// The interpreter operations that determine the status of objects.
const STATUS_OPERATIONS: &[InterpreterOperation] = &[
    InterpreterOperation::InterpretStatus,
    InterpreterOperation::InterpretHealth,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WorkClusterOrKindKey {
    /// `namespace/name`.
    Work(String),
    /// All Works of a cluster.
    Cluster(String),
    /// All Works in a namespace with objects of a kind.
    Kind(String, Gvk),
}

struct WorkStatusController {
    control_plane: Arc<dyn Api>,
    members: Arc<dyn MemberAccess>,
    clusters: ClusterLister,
    recorder: EventRecorder,
    clock: Arc<dyn Clock>,
    interpreter: ResourceInterpreter,
    rest_mapper: Arc<RestMapper>,
    works: Informer,
    queue: Workqueue<WorkClusterOrKindKey>,
    expectations: Expectations<String>,
    /// The kinds of all objects that were reflected.
    kinds: ArcSwap<HashSet<Gvk>>,
}

pub(crate) fn start(context: &PropagationContext, mapper: &Arc<RestMapper>) {
    let controller = Arc::new(WorkStatusController {
        control_plane: Arc::clone(&context.controller.control_plane),
        members: Arc::clone(&context.members),
        clusters: context.clusters.clone(),
        recorder: context
            .controller
            .recorder
            .with_component("work-status-controller"),
        clock: Arc::clone(&context.controller.clock),
        interpreter: context.interpreter.clone(),
        rest_mapper: Arc::clone(mapper),
        works: context.controller.informer(&WORKS),
        queue: Workqueue::new(),
        expectations: Expectations::with_min_write_interval(MIN_WRITE_INTERVAL),
        kinds: ArcSwap::default(),
    });
    controller.add_event_handlers();
    let tasks = context.controller.tasks.clone();
    context.controller.tasks.spawn(async move {
        let ready = async {
            controller.clusters.informer().wait_for_cache_sync().await;
            controller.works.wait_for_cache_sync().await;
            controller.interpreter.wait_for_cache_sync().await;
        };
        if tasks.shutdown().run_until_triggered(ready).await.is_none() {
            return;
        }
        let queue = controller.queue.clone();
        run_workers(
            &tasks,
            ControllerName::with_stage("work-status", "reflected"),
            &queue,
            WORKERS,
            move |key| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(key).await }
            },
        );
    });
}

impl WorkStatusController {
    fn add_event_handlers(self: &Arc<Self>) {
        let namespace = |work: &Object| vec![work.namespace().to_owned()];
        self.works.add_index(NAMESPACE_INDEX, namespace);
        let controller = Arc::downgrade(self);
        self.works.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.on_work_event(change);
            }
        });
        let controller = Arc::downgrade(self);
        self.clusters.informer().add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade()
                && change.old.is_some()
                && !change.old.is_some_and(is_cluster_ready)
                && change.new.is_some_and(is_cluster_ready)
            {
                let name = change.object().name().to_owned();
                controller
                    .queue
                    .add_low(WorkClusterOrKindKey::Cluster(name));
            }
        });
        let controller = Arc::downgrade(self);
        self.interpreter.add_change_listener(move |changed| {
            if let Some(controller) = controller.upgrade()
                && changed.affects_operations(STATUS_OPERATIONS)
            {
                controller.on_interpreter_change(changed);
            }
        });
        let queue = self.queue.clone();
        self.members
            .on_connection_change(Box::new(move |cluster, connected| {
                if connected {
                    queue.add_low(WorkClusterOrKindKey::Cluster(cluster.to_owned()));
                }
            }));
        let queue = self.queue.clone();
        self.members
            .on_managed_object(Box::new(move |cluster, _, change| {
                // A deleted object keeps its last status.
                if let Some(work) = change
                    .new
                    .and_then(|object| owning_work_key(cluster, object))
                {
                    queue.add_event(WorkClusterOrKindKey::Work(work), change);
                }
            }));
    }

    /// Enqueues Works after the interpreter's rules for a kind changed.
    fn on_interpreter_change(&self, changed: &InterpreterRuleChange<'_>) {
        let kinds = self.kinds.load();
        let concerned = kinds
            .iter()
            .filter(|kind| changed.affects_kind(kind, STATUS_OPERATIONS));
        for kind in concerned {
            for space in self.works.index_keys(NAMESPACE_INDEX, |_| true) {
                self.queue
                    .add_low(WorkClusterOrKindKey::Kind(space, kind.clone()));
            }
        }
    }

    async fn enqueue_works(&self, namespace: &str, kind: Option<&Gvk>) {
        for work in self.works.by_index(NAMESPACE_INDEX, namespace) {
            let carries = |kind: &Gvk| {
                let facts = PartialWork::from_object(&work);
                facts.is_ok_and(|facts| facts.manifests().iter().any(|m| m.gvk() == *kind))
            };
            if kind.is_none_or(carries) {
                self.queue
                    .add_low(WorkClusterOrKindKey::Work(work.meta().key()));
            }
            tokio::task::consume_budget().await;
        }
    }

    fn on_work_event(&self, change: &InformerEvent<'_>) {
        let key = change.key();
        let Some(work) = change.new else {
            self.expectations.forget(&key);
            return;
        };
        let is_expected = self.expectations.satisfy(&key, work);
        if !work.meta().deleting && (is_expected || !self.expectations.is_own_write(&key, work)) {
            self.queue
                .add_event(WorkClusterOrKindKey::Work(key), change);
        }
    }

    async fn reconcile(
        &self,
        key: WorkClusterOrKindKey,
    ) -> Result<ReconcileAction, StatusControllersError> {
        let key = match key {
            WorkClusterOrKindKey::Work(key) => key,
            WorkClusterOrKindKey::Cluster(cluster) => {
                self.enqueue_works(&execution_space_name(&cluster), None)
                    .await;
                return Ok(ReconcileAction::Done);
            }
            WorkClusterOrKindKey::Kind(namespace, kind) => {
                self.enqueue_works(&namespace, Some(&kind)).await;
                return Ok(ReconcileAction::Done);
            }
        };
        let work = match self
            .expectations
            .check(&key, || self.works.get_by_key(&key))
        {
            ReconcileReadiness::Ready(work) if !work.meta().deleting => work,
            ReconcileReadiness::After(rest) => return Ok(ReconcileAction::RequeueAfter(rest)),
            ReconcileReadiness::Ready(_)
            | ReconcileReadiness::Gone
            | ReconcileReadiness::Awaited => return Ok(ReconcileAction::Done),
        };
        let Some(cluster) = cluster_of_execution_space(work.namespace()) else {
            return Ok(ReconcileAction::Done);
        };
        let ready = self
            .clusters
            .get(cluster)
            .is_some_and(|c| c.cluster.is_ready());
        let facts = PartialWork::from_object(&work)?;
        if !facts.has_applied_condition() {
            return Ok(ReconcileAction::Done);
        }
        let collection = work.annotations().remove(STATUS_COLLECTION);
        if collection.as_deref() == Some(STATUS_COLLECTION_DISABLED) {
            return self.clear_statuses(&key, &work, &facts).await;
        }
        // If applying failed or the cluster is not Ready, objects with a running informer are
        // still reflected.
        let follows = ready && facts.applied_result().is_ok();
        let observed = self.collect_objects(cluster, &key, &facts, follows).await?;
        let readings = interpret(&self.interpreter, &facts, &observed).await;
        let outcome = reflect_status(&facts, &observed, readings);
        if let Some(rest) = first_status_delay(&facts, &outcome, &observed, self.clock.now()) {
            return Ok(ReconcileAction::RequeueAfter(rest));
        }
        self.write_status(&key, &work, &facts, outcome).await
    }

    /// Removes what was collected before the collection was switched off: nothing stale is shown.
    async fn clear_statuses(
        &self,
        key: &String,
        work: &Object,
        facts: &PartialWork,
    ) -> Result<ReconcileAction, StatusControllersError> {
        let has_statuses = !facts.status.manifest_statuses.is_empty();
        let outcome = ReflectResult {
            statuses: has_statuses.then(Vec::new),
            ..ReflectResult::default()
        };
        self.write_status(key, work, facts, outcome).await
    }

    /// Records the events of a result and writes what differs.
    async fn write_status(
        &self,
        key: &String,
        work: &Object,
        facts: &PartialWork,
        outcome: ReflectResult,
    ) -> Result<ReconcileAction, StatusControllersError> {
        self.record_events(work, outcome.events);
        let now = self.clock.now();
        let current = outcome.statuses.as_ref();
        let current = current.unwrap_or(&facts.status.manifest_statuses);
        let (conditions, changed) = facts.conditions_with(current, now);
        let rest = time_until_degraded(&conditions, now);
        let fields = status_fields(facts, outcome.statuses, changed.then_some(conditions));
        let writer = StatusWriter::new(&*self.control_plane, "work-status");
        match writer.patch(&WORKS, work, fields).await {
            Ok(None) => {}
            Ok(Some(written)) => {
                let look = || self.works.get_by_key(key);
                self.expectations.expect(key, &written, look);
            }
            Err(e) if e.is_conflict() => return Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
        match outcome.retryable_error {
            Some(reason) => Err(StatusControllersError::InterpreterUnavailable(reason)),
            None => Ok(rest.map_or(ReconcileAction::Done, ReconcileAction::RequeueAfter)),
        }
    }

    fn record_kind(&self, kind: &Gvk) {
        if !self.kinds.load().contains(kind) {
            self.kinds.rcu(|kinds| {
                let mut kinds = HashSet::clone(kinds);
                kinds.insert(kind.clone());
                kinds
            });
        }
    }

    /// The objects of the manifests, if they exist and belong to the Work. `follows`: starts
    /// informers where needed.
    async fn collect_objects(
        &self,
        cluster: &str,
        key: &str,
        facts: &PartialWork,
        follows: bool,
    ) -> Result<Vec<Option<Object>>, Error> {
        let mut observed = Vec::with_capacity(facts.manifests().len());
        for manifest in facts.manifests() {
            self.record_kind(&manifest.gvk());
            let resource = match self.rest_mapper.resource_for(&manifest.gvk()).await {
                Ok(resource) => Some(resource),
                Err(error) if follows => return Err(error),
                Err(_) => None,
            };
            // If the member is not connected, its next connection enqueues the Work again.
            let informer = resource.and_then(|resource| {
                let followed = || self.members.find_managed_informer(cluster, &resource);
                let managed = || self.members.managed_informer(cluster, &resource).ok();
                if follows { managed() } else { followed() }
            });
            let name = &manifest.metadata;
            let object = informer.and_then(|i| i.get(&name.namespace, &name.name));
            observed.push(object.filter(|o| owning_work_key(cluster, o).is_some_and(|w| w == key)));
        }
        Ok(observed)
    }

    fn record_events(&self, work: &Object, events: Vec<WorkEventToRecord>) {
        if events.is_empty() {
            return;
        }
        let about = InvolvedObject::new("work.karmada.io/v1alpha1", "Work", work);
        for event in events {
            if event.warning {
                self.recorder.warning(&about, event.reason, event.message);
            } else {
                self.recorder.normal(&about, event.reason, event.message);
            }
        }
    }
}

/// The fields to write; conditions alone only if the Work has had them before.
fn status_fields(
    work: &PartialWork,
    statuses: Option<Vec<ManifestStatus>>,
    conditions: Option<Vec<Condition>>,
) -> Option<Value> {
    let is_due = statuses.is_some() || (conditions.is_some() && work.has_derived_conditions());
    is_due.then(|| {
        let mut fields = json!({});
        if let Some(statuses) = statuses {
            fields["manifestStatuses"] = json!(statuses);
        }
        if let Some(conditions) = conditions {
            fields["conditions"] = json!(conditions);
        }
        fields
    })
}

fn is_cluster_ready(cluster: &Object) -> bool {
    let view = cluster.decode::<karmada_api::Cluster>();
    view.is_ok_and(|c| c.is_ready())
}
