//! Runs the execution controller: enqueues Works after changes and starts the workers of each
//! cluster.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, Informer, InformerEvent, InvolvedObject, Patch, ResourcePath, TaskGroup, ignore_not_found,
};
use controller_context::{Error, ManifestMemoryBudget, PropagationContext, is_equal_except_status};
use flotilla_runtime::{
    ClusterLister, ControllerName, EventRecorder, Expectations, PriorityQueueLane, ReconcileAction,
    RestMapper, StatusWriter, Workqueue, is_generation_or_deletion_changed, run_workers,
};
use interpreter::{InterpreterOperation, InterpreterRuleChange, ResourceInterpreter};
use karmada_api::names;
use karmada_api::resources::WORKS;
use karmada_api::well_known_keys::{OVERRIDDEN_FIELDS, WORK_NAME, WORK_NAMESPACE};
use machinery::time::Clock;
use machinery::{Gvk, Object};
use members::MemberAccess;
use serde_json::json;

use crate::cluster_executor::{ClusterExecutor, ClusterExecutors, SyncedWork};
use crate::conditions::{WorkCondition, set_conditions};
use crate::custom_schemas::CustomSchemas;
use crate::idle_informers::{IdleInformerChecker, manifest_kinds};
use crate::manifest::EncodedWork;
use crate::options::{ExecutionControllerOptions, ExecutionScope};
use crate::propagation::undeleted_condition;

const BY_CLUSTER: &str = "cluster";
/// The interpreter operations that decide which fields of an observed object are retained.
const RETENTION_OPERATIONS: &[InterpreterOperation] = &[InterpreterOperation::Retain];
/// Concurrent calls to one member.
const WORKERS_PER_CLUSTER: usize = 8;

pub struct ExecutionController {
    pub(crate) control_plane: Arc<dyn Api>,
    pub(crate) members: Arc<dyn MemberAccess>,
    pub(crate) clusters: ClusterLister,
    pub(crate) rest_mapper: Arc<RestMapper>,
    pub(crate) recorder: EventRecorder,
    pub(crate) interpreter: ResourceInterpreter,
    pub(crate) call_timeout: Duration,
    clock: Arc<dyn Clock>,
    scope: ExecutionScope,
    works: Informer,
    pub(crate) executors: ClusterExecutors,
    pub(crate) idle_informers: IdleInformerChecker,
    pub(crate) memory: Arc<ManifestMemoryBudget>,
    pub(crate) custom_schemas: CustomSchemas,
    /// Kinds whose retention rules have changed, by cluster.
    changed_retention: Workqueue<(String, Gvk)>,
    /// The last write of each Work's conditions.
    condition_writes: Expectations<String>,
    tasks: TaskGroup,
}

impl ExecutionController {
    pub async fn start(context: &PropagationContext, options: ExecutionControllerOptions) {
        let controller = Self::with_event_handlers(context, options).await;
        // The workers hold the controller; this task waits for their end.
        let shutdown = context.controller.tasks.shutdown().clone();
        context.controller.tasks.spawn(async move {
            shutdown.wait().await;
            controller.tasks.join().await;
        });
    }

    /// Returns a controller whose workers end with `tasks`; the caller waits for them.
    pub(crate) async fn with_event_handlers(
        context: &PropagationContext,
        options: ExecutionControllerOptions,
    ) -> Arc<Self> {
        let controller = Arc::new(Self {
            control_plane: Arc::clone(&context.controller.control_plane),
            members: Arc::clone(&context.members),
            clusters: context.clusters.clone(),
            rest_mapper: options.rest_mapper,
            recorder: context
                .controller
                .recorder
                .with_component("execution-controller"),
            interpreter: context.interpreter.clone(),
            call_timeout: options.call_timeout,
            clock: Arc::clone(&context.controller.clock),
            scope: options.scope,
            works: options.works.informer,
            executors: ClusterExecutors::default(),
            idle_informers: IdleInformerChecker::default(),
            memory: options.memory,
            custom_schemas: CustomSchemas::new(
                Arc::clone(&context.controller.control_plane),
                options.call_timeout,
            ),
            changed_retention: Workqueue::new(),
            condition_writes: Expectations::default(),
            tasks: context.controller.tasks.child(),
        });
        controller.works.add_index(BY_CLUSTER, |work| {
            let cluster = names::cluster_of_execution_space(work.namespace());
            cluster.map(str::to_owned).into_iter().collect()
        });
        controller.clusters.informer().wait_for_cache_sync().await;
        controller.add_event_handlers();
        controller.start_idle_worker(&controller.tasks);
        controller
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let controller = Arc::downgrade(self);
        self.works.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.on_work_event(change);
            }
        });
        let controller = Arc::downgrade(self);
        self.interpreter.add_change_listener(move |changed| {
            if let Some(controller) = controller.upgrade()
                && changed.affects_operations(RETENTION_OPERATIONS)
            {
                controller.on_retention_rules_changed(changed);
            }
        });
        let controller = Arc::clone(self);
        let queue = self.changed_retention.clone();
        run_workers(&self.tasks, "retained-kinds", &queue, 1, move |at| {
            let controller = Arc::clone(&controller);
            async move {
                controller.enqueue_works_of_kind(&at).await;
                Ok::<_, Infallible>(ReconcileAction::Done)
            }
        });
        let controller = Arc::downgrade(self);
        self.clusters.informer().add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.on_cluster_event(change);
            }
        });
        let controller = Arc::downgrade(self);
        self.members
            .on_managed_object(Box::new(move |cluster, _, change| {
                if let Some(controller) = controller.upgrade() {
                    controller.on_member_object_event(cluster, change);
                }
            }));
        let controller = Arc::downgrade(self);
        self.members
            .on_connection_change(Box::new(move |cluster, connected| {
                if let Some(controller) = controller.upgrade()
                    && connected
                {
                    controller.enqueue_all(cluster);
                }
            }));
    }

    fn on_work_event(self: &Arc<Self>, change: &InformerEvent<'_>) {
        match (change.old, change.new) {
            (Some(gone), None) => {
                self.idle_informers.on_work_deleted(gone);
                let key = gone.meta().key();
                self.condition_writes.forget(&key);
                if let Some(executor) = self.executor_of(gone) {
                    executor.synced_works.invalidate(&key);
                    executor.repairs.forget(&key);
                    // The key of the last Work of a deleted cluster ends the workers.
                    executor.add(&key, PriorityQueueLane::Low);
                }
            }
            (Some(old), Some(new)) if !is_generation_or_deletion_changed(old, new) => {
                let fields = |work: &Object| work.annotations().remove(OVERRIDDEN_FIELDS);
                if fields(old) != fields(new) {
                    self.invalidate_synced(new);
                    self.enqueue(new.meta().key(), PriorityQueueLane::High);
                }
            }
            _ => self.enqueue(change.object().meta().key(), PriorityQueueLane::of(change)),
        }
    }

    /// Enqueues the Works with objects of kinds whose retention rules have changed.
    fn on_retention_rules_changed(&self, changed: &InterpreterRuleChange<'_>) {
        let kinds = self.idle_informers.kinds();
        let concerned = kinds
            .iter()
            .filter(|kind| changed.affects_kind(kind, RETENTION_OPERATIONS));
        for kind in concerned {
            for cluster in self.works.index_keys(BY_CLUSTER, |_| true) {
                self.changed_retention.add_low((cluster, kind.clone()));
            }
        }
    }

    /// Invalidates and enqueues the Works of a cluster that have objects of a kind.
    async fn enqueue_works_of_kind(self: &Arc<Self>, (cluster, kind): &(String, Gvk)) {
        for work in self.list_works(cluster) {
            if manifest_kinds(&work).contains(kind) {
                self.invalidate_synced(&work);
                self.enqueue(work.meta().key(), PriorityQueueLane::Low);
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Enqueues the Works of a cluster that becomes ready or is deleted.
    fn on_cluster_event(self: &Arc<Self>, change: &InformerEvent<'_>) {
        let name = change.object().name();
        let ready = |o: Option<&Object>| {
            o.and_then(|o| o.decode::<karmada_api::Cluster>().ok())
                .is_some_and(|c| c.is_ready())
        };
        let deleting = |o: Option<&Object>| o.is_some_and(|o| o.meta().deleting);
        let matters = change.new.is_none()
            || (ready(change.new) && !ready(change.old))
            || (deleting(change.new) && !deleting(change.old));
        if matters {
            self.enqueue_all(name);
        }
        if change.new.is_none() {
            self.stop_unused_workers(name, None);
        }
    }

    /// Enqueues the Work of a member's object that has changed.
    fn on_member_object_event(self: &Arc<Self>, cluster: &str, change: &InformerEvent<'_>) {
        match (change.old, change.new) {
            // The informer of the Works enqueues these.
            (None, Some(_)) if change.in_initial_list => return,
            (Some(old), Some(new)) if is_equal_except_status(old, new) => return,
            _ => {}
        }
        let object = change.old.unwrap_or_else(|| change.object());
        let annotations = object.annotations();
        let at = (annotations.get(WORK_NAMESPACE), annotations.get(WORK_NAME));
        if let (Some(namespace), Some(name)) = at
            && names::cluster_of_execution_space(namespace) == Some(cluster)
        {
            self.enqueue(format!("{namespace}/{name}"), PriorityQueueLane::of(change));
        }
    }

    pub(crate) fn list_works(&self, cluster: &str) -> Vec<Object> {
        self.works.by_index(BY_CLUSTER, cluster)
    }

    fn enqueue_all(self: &Arc<Self>, cluster: &str) {
        for work in self.list_works(cluster) {
            self.enqueue(work.meta().key(), PriorityQueueLane::Low);
        }
    }

    fn enqueue(self: &Arc<Self>, key: String, lane: PriorityQueueLane) {
        let Some(cluster) = key
            .split_once('/')
            .and_then(|(space, _)| names::cluster_of_execution_space(space))
        else {
            return;
        };
        if !self.scope.includes(cluster, &self.clusters) {
            return;
        }
        let tasks = || self.tasks.child();
        let start = |executor: &Arc<ClusterExecutor>| self.start_workers(cluster, executor);
        self.executors.add(cluster, &key, lane, tasks, start);
    }

    fn start_workers(self: &Arc<Self>, cluster: &str, executor: &Arc<ClusterExecutor>) {
        let (controller, cluster, of) =
            (Arc::clone(self), cluster.to_owned(), Arc::clone(executor));
        run_workers(
            &executor.tasks,
            ControllerName::with_stage("execution", "applied"),
            &executor.queue,
            WORKERS_PER_CLUSTER,
            move |key: String| {
                let (controller, cluster, executor) =
                    (Arc::clone(&controller), cluster.clone(), Arc::clone(&of));
                async move { controller.reconcile(&cluster, &executor, &key).await }
            },
        );
    }

    async fn reconcile(
        &self,
        cluster: &str,
        executor: &ClusterExecutor,
        key: &str,
    ) -> Result<ReconcileAction, Error> {
        let Some(object) = self.works.get_by_key(key) else {
            self.stop_unused_workers(cluster, Some(key));
            return Ok(ReconcileAction::Done);
        };
        if !object.meta().deleting && self.is_synced(cluster, executor, &object) {
            return Ok(ReconcileAction::Done);
        }
        let attempt = executor.queue.num_requeues(&key.to_owned());
        executor.synced_works.begin(key.to_owned());
        let work = EncodedWork::parse(&object).map_err(Error::blocked)?;
        if object.meta().deleting {
            let deleted = self.delete_work(cluster, &object, &work).await;
            if let Err(error) = &deleted {
                let condition = undeleted_condition(error);
                self.update_conditions(&object, &work, &[condition]).await?;
            }
            deleted
        } else {
            self.apply_work(cluster, executor, &object, &work, attempt)
                .await
        }
    }

    /// Ends the workers of a deleted cluster without Works. `but` is the key that the caller
    /// processes.
    fn stop_unused_workers(&self, cluster: &str, but: Option<&str>) {
        if self.clusters.get(cluster).is_none() {
            let is_unused =
                || self.clusters.get(cluster).is_none() && self.list_works(cluster).is_empty();
            self.executors.stop_unused(cluster, but, is_unused);
        }
    }

    fn executor_of(&self, work: &Object) -> Option<Arc<ClusterExecutor>> {
        self.executors
            .get(names::cluster_of_execution_space(work.namespace())?)
    }

    /// The recorded sync state of this version of a Work.
    pub(crate) fn synced_work(&self, work: &Object) -> Option<Arc<SyncedWork>> {
        let executor = self.executor_of(work)?;
        let synced = executor.synced_works.get(&work.meta().key());
        synced.filter(|in_order| in_order.matches_work(work))
    }

    pub(crate) fn record_synced(&self, work: &Object, in_order: SyncedWork) {
        let Some(executor) = self.executor_of(work) else {
            return;
        };
        let key = work.meta().key();
        executor
            .synced_works
            .finish(key.clone(), Arc::new(in_order));
        // The handler that forgets a deleted Work may have run before.
        if self.works.get_by_key(&key).is_none() {
            executor.synced_works.invalidate(&key);
        }
    }

    pub(crate) fn invalidate_synced(&self, work: &Object) {
        if let Some(executor) = self.executor_of(work) {
            executor.synced_works.invalidate(&work.meta().key());
        }
    }

    fn is_synced(&self, cluster: &str, executor: &ClusterExecutor, work: &Object) -> bool {
        let Some(synced) = executor.synced_works.get(&work.meta().key()) else {
            return false;
        };
        synced.matches_work(work)
            && executor.repairs.conflicts(&work.meta().key()).is_empty()
            && synced.objects.iter().all(|t| {
                let informer = self.members.managed_informer(cluster, &t.resource);
                informer
                    .ok()
                    .and_then(|i| i.get(&t.namespace, &t.name))
                    .is_some_and(|o| o.revision() == t.revision)
            })
    }

    /// Writes the conditions that differ.
    pub(crate) async fn update_conditions(
        &self,
        object: &Object,
        work: &EncodedWork,
        conditions: &[WorkCondition],
    ) -> Result<(), Error> {
        let key = object.meta().key();
        // The controller of Work status writes conditions, too: what it wrote while the member was
        // written to must not be lost.
        let cached = self.works.get_by_key(&key);
        let cached = cached.filter(|cached| cached.uid() == object.uid());
        let base = cached.as_ref().unwrap_or(object);
        // The last write may not have arrived by the watch yet: compared with the older copy, a
        // recovery would look unchanged.
        let newest = if self.condition_writes.is_ahead_of(&key, base) {
            let at = ResourcePath::of_object(&WORKS, object);
            let newest = ignore_not_found(self.control_plane.get(at).await)?;
            let Some(newest) = newest else {
                return Ok(());
            };
            Some(EncodedWork::parse(&newest).map_err(Error::blocked)?)
        } else if base.revision() != object.revision() {
            Some(EncodedWork::parse(base).map_err(Error::blocked)?)
        } else {
            None
        };
        let current = newest.as_ref().unwrap_or(work);
        let mut all = current.conditions.clone();
        let (generation, now) = (object.meta().generation, self.clock.now());
        let health = current.work_health();
        let changed = set_conditions(&mut all, conditions, &health, generation, now);
        // The patch is guarded by the uid and not by the resourceVersion, so that the controller
        // that writes the collected status does not delay it; that one repairs the conditions which
        // follow from health if the two have met.
        let patch = changed.then(|| {
            let uid = object.uid();
            Patch::Merge(json!({"metadata": {"uid": uid}, "status": {"conditions": all}}))
        });
        let writer = StatusWriter::new(&*self.control_plane, "execution");
        let written = writer.send(&WORKS, object, patch).await;
        if let Some(written) = ignore_not_found(written)?.flatten() {
            let look = || self.works.get_by_key(&key);
            self.condition_writes.expect(&key, &written, look);
        }
        Ok(())
    }

    pub(crate) fn work_reference(object: &Object) -> InvolvedObject {
        InvolvedObject::new("work.karmada.io/v1alpha1", "Work", object)
    }
}
