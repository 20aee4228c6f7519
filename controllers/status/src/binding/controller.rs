//! The controller of binding status: aggregates Works on changes of Works and bindings and
//! writes `status.aggregatedStatus` and the FullyApplied condition of bindings, the status
//! of templates, and events about both.

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, Error, Informer, InformerEvent, InformerFactory, InvolvedObject, ListWatchSelector, Patch,
    ResourcePath, TaskGroup, ignore_not_found,
};
use controller_context::PropagationContext;
use flotilla_runtime::{
    ControllerName, EventRecorder, Expectations, HostWorkloadFilter, IndexKeyWorkqueue,
    ReconcileAction, ReconcileReadiness, RestMapper, ShardedMap, StatusWriter, Workqueue,
    run_workers,
};
use interpreter::{InterpreterOperation, ResourceInterpreter};
use karmada_api::binding::{AggregatedStatusItem, ObjectReference};
use karmada_api::kind_in_namespace::{KindInNamespace, RESOURCE_GROUP_INDEX};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, WORKS};
use karmada_api::rollout::ROLLOUTS;
use karmada_api::{ResourceBinding, ResourceBindingSpec, kind_in_namespace};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvk, Gvr, Object};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::aggregate::{Aggregation, aggregate, is_progressing, is_same_status, update_conditions};
use super::event_filter::{changes_aggregation, needs_aggregation, permanent_ids};
use super::staged_status::{StagedStatus, has_other_revisions, set_revisions};
use super::template_aggregation::TemplateAggregation;
use crate::error::StatusControllersError;
use crate::write_interval::{MIN_WRITE_INTERVAL, write_interval};

/// Many, because a worker mostly waits for its write, and stores commit in groups.
const WORKERS: usize = 16;
/// Time in which reports of several clusters are batched; each alone would cost a write of
/// the binding and of the template.
const BATCH_WINDOW: Duration = Duration::from_millis(50);
/// How long a status is delayed at most while objects become applied or healthy.
const MAX_PROGRESSING_DELAY: Duration = Duration::from_millis(250);
/// Index of Works and of bindings by permanent id.
const WORK_BINDING_INDEX: &str = "binding";
const PERMANENT_ID_INDEX: &str = "permanent-id";

const AGGREGATE_SUCCEEDED: &str = "AggregateStatusSucceed";
const AGGREGATE_FAILED: &str = "AggregateStatusFailed";
/// The interpreter operations that determine the status of templates.
const AGGREGATE_OPERATIONS: &[InterpreterOperation] = &[InterpreterOperation::AggregateStatus];

/// A binding: its scope and `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BindingStatusKey {
    cluster_scoped: bool,
    name: String,
}

impl BindingStatusKey {
    fn resource(&self) -> &'static Gvr {
        if self.cluster_scoped {
            &CLUSTER_BINDINGS
        } else {
            &BINDINGS
        }
    }

    fn kind(&self) -> &'static str {
        if self.cluster_scoped {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        }
    }
}

struct BindingStatusController {
    control_plane: Arc<dyn Api>,
    recorder: EventRecorder,
    clock: Arc<dyn Clock>,
    interpreter: ResourceInterpreter,
    rest_mapper: Arc<RestMapper>,
    informers: InformerFactory,
    host: HostWorkloadFilter,
    works: Informer,
    bindings: Informer,
    cluster_bindings: Informer,
    rollouts: Informer,
    queue: Workqueue<BindingStatusKey>,
    expectations: Expectations<BindingStatusKey>,
    /// The last own write of each binding's template.
    template_expectations: Expectations<BindingStatusKey>,
    /// Until when the status of a binding that is still progressing is delayed.
    progressing_until: ShardedMap<BindingStatusKey, Instant>,
}

pub(crate) fn start(context: &PropagationContext, mapper: &Arc<RestMapper>) {
    let controller = Arc::new(BindingStatusController {
        control_plane: Arc::clone(&context.controller.control_plane),
        recorder: context.controller.recorder.clone(),
        clock: Arc::clone(&context.controller.clock),
        interpreter: context.interpreter.clone(),
        rest_mapper: Arc::clone(mapper),
        informers: context.controller.informers.clone(),
        host: context.host.clone(),
        works: context.controller.informer(&WORKS),
        bindings: context.controller.informer(&BINDINGS),
        cluster_bindings: context.controller.informer(&CLUSTER_BINDINGS),
        rollouts: context.controller.informer(&ROLLOUTS),
        queue: Workqueue::new(),
        expectations: Expectations::with_min_write_interval(MIN_WRITE_INTERVAL),
        template_expectations: Expectations::with_min_write_interval(MIN_WRITE_INTERVAL),
        progressing_until: ShardedMap::default(),
    });
    controller.add_event_handlers(&context.controller.tasks);
    let tasks = context.controller.tasks.clone();
    context.controller.tasks.spawn(async move {
        let synced = async {
            controller.works.wait_for_cache_sync().await;
            controller.interpreter.wait_for_cache_sync().await;
            controller.bindings.wait_for_cache_sync().await;
            controller.cluster_bindings.wait_for_cache_sync().await;
            controller.rollouts.wait_for_cache_sync().await;
            controller.host.wait_for_cache_sync().await;
        };
        if tasks.shutdown().run_until_triggered(synced).await.is_none() {
            return;
        }
        let queue = controller.queue.clone();
        run_workers(
            &tasks,
            ControllerName::with_stage("binding-status", "aggregated"),
            &queue,
            WORKERS,
            move |key| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    });
}

impl BindingStatusController {
    fn informer(&self, cluster_scoped: bool) -> &Informer {
        if cluster_scoped {
            &self.cluster_bindings
        } else {
            &self.bindings
        }
    }

    fn add_event_handlers(self: &Arc<Self>, tasks: &TaskGroup) {
        self.works.add_index(WORK_BINDING_INDEX, permanent_ids);
        for cluster_scoped in [false, true] {
            let informer = self.informer(cluster_scoped);
            informer.add_index(PERMANENT_ID_INDEX, permanent_ids);
            informer.add_index(RESOURCE_GROUP_INDEX, kind_in_namespace::index_keys);
            let controller = Arc::downgrade(self);
            informer.add_event_handler(move |change| {
                if let Some(controller) = controller.upgrade() {
                    controller.on_binding_event(cluster_scoped, change);
                }
            });
        }
        // The interpreter's rules for a kind changed.
        let queue = self.queue.clone();
        let visit = move |binding: &Object| {
            queue.add_low(BindingStatusKey {
                cluster_scoped: binding.namespace().is_empty(),
                name: binding.meta().key(),
            });
        };
        let informers = [&self.bindings, &self.cluster_bindings];
        let name = "aggregated-kinds";
        let sweep = IndexKeyWorkqueue::start(tasks, name, &informers, RESOURCE_GROUP_INDEX, visit);
        self.interpreter.add_change_listener(move |changed| {
            if changed.affects_operations(AGGREGATE_OPERATIONS) {
                let concerns = |group: KindInNamespace<'_>| {
                    changed.affects_kind(&group.gvk(), AGGREGATE_OPERATIONS)
                };
                sweep.add(|key| KindInNamespace::parse(key).is_some_and(concerns));
            }
        });
        let queue = self.queue.clone();
        self.rollouts.add_event_handler(move |change| {
            if !change.in_initial_list && has_other_revisions(change) {
                let key = BindingStatusKey {
                    cluster_scoped: false,
                    name: change.key(),
                };
                queue.add_after(key, BATCH_WINDOW);
            }
        });
        let controller = Arc::downgrade(self);
        self.works.add_event_handler(move |change| {
            if changes_aggregation(change)
                && let Some(controller) = controller.upgrade()
            {
                controller.on_work_event(change);
            }
        });
    }

    fn on_work_event(&self, change: &InformerEvent<'_>) {
        for id in permanent_ids(change.object()) {
            for cluster_scoped in [false, true] {
                for binding in self
                    .informer(cluster_scoped)
                    .by_index(PERMANENT_ID_INDEX, &id)
                {
                    let name = binding.meta().key();
                    let key = BindingStatusKey {
                        cluster_scoped,
                        name,
                    };
                    if change.in_initial_list {
                        self.queue.add_low(key);
                    } else {
                        self.queue.add_after(key, BATCH_WINDOW);
                    }
                }
            }
        }
    }

    fn on_binding_event(&self, cluster_scoped: bool, change: &InformerEvent<'_>) {
        let key = BindingStatusKey {
            cluster_scoped,
            name: change.key(),
        };
        match change.new {
            None => self.forget(&key),
            Some(new) => {
                if self.expectations.satisfy(&key, new)
                    || needs_aggregation(change.old, new)
                    || change.old.is_none() && self.has_works(new)
                {
                    self.queue.add_event(key, change);
                }
            }
        }
    }

    /// Whether Works of the binding are cached. Their events have not found a binding that is
    /// seen only after them.
    fn has_works(&self, binding: &Object) -> bool {
        let ids = permanent_ids(binding);
        ids.iter()
            .any(|id| !self.works.by_index(WORK_BINDING_INDEX, id).is_empty())
    }

    async fn reconcile(
        &self,
        key: &BindingStatusKey,
    ) -> Result<ReconcileAction, StatusControllersError> {
        let informer = self.informer(key.cluster_scoped);
        let object = match self
            .expectations
            .check(key, || informer.get_by_key(&key.name))
        {
            ReconcileReadiness::Ready(binding) if !binding.meta().deleting => binding,
            ReconcileReadiness::After(rest) => return Ok(ReconcileAction::RequeueAfter(rest)),
            ReconcileReadiness::Gone => {
                self.forget(key);
                return Ok(ReconcileAction::Done);
            }
            ReconcileReadiness::Ready(_) | ReconcileReadiness::Awaited => {
                return Ok(ReconcileAction::Done);
            }
        };
        let Some(id) = permanent_ids(&object).into_iter().next() else {
            return Ok(ReconcileAction::Done);
        };
        let binding = object.decode::<ResourceBinding>()?;
        let interval = write_interval(binding.status.aggregated_status.len());
        let rest = self.expectations.rest_of_interval(key, interval);
        if !rest.is_zero() {
            return Ok(ReconcileAction::RequeueAfter(rest));
        }
        let works = self.works.by_index(WORK_BINDING_INDEX, &id);
        let aggregation = match aggregate(&works, &binding.spec) {
            Ok(aggregation) => aggregation,
            Err(failure) => {
                self.record_failure(key, &object, &failure);
                // Only a change of the Work can fix this.
                return Ok(ReconcileAction::Done);
            }
        };
        if let Some(rest) = self.progressing_delay(key, &binding, &aggregation.items) {
            return Ok(ReconcileAction::RequeueAfter(rest));
        }
        let (on_binding, on_template) = tokio::join!(
            self.write_binding(key, &object, &binding, &aggregation.items),
            self.write_template(key, &object, &binding.spec, &aggregation),
        );
        let conflict = [&on_binding, &on_template]
            .iter()
            .any(|r| r.as_ref().is_err_and(StatusControllersError::is_conflict));
        match on_binding.and(on_template) {
            Ok(action) => Ok(action),
            Err(_) if conflict => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(error) => Err(error),
        }
    }

    /// Drops everything remembered about a deleted binding.
    fn forget(&self, key: &BindingStatusKey) {
        self.expectations.forget(key);
        self.template_expectations.forget(key);
        self.progressing_until.lock(key).remove(key);
    }

    fn expect_write(
        &self,
        writes: &Expectations<BindingStatusKey>,
        key: &BindingStatusKey,
        written: &Object,
    ) {
        let informer = self.informer(key.cluster_scoped);
        writes.expect(key, written, || informer.get_by_key(&key.name));
    }

    /// How much longer to delay a status that is about to change.
    fn progressing_delay(
        &self,
        key: &BindingStatusKey,
        binding: &ResourceBinding,
        items: &[AggregatedStatusItem],
    ) -> Option<Duration> {
        let old = &binding.status;
        let settling =
            old.aggregated_status != items && is_progressing(&binding.spec, &old.conditions, items);
        let mut progressing_until = self.progressing_until.lock(key);
        if settling {
            let now = Instant::now();
            let until = *progressing_until
                .entry(key.clone())
                .or_insert(now + MAX_PROGRESSING_DELAY);
            if now < until {
                return Some(until - now);
            }
        }
        progressing_until.remove(key);
        None
    }

    fn recorder_for(&self, key: &BindingStatusKey) -> EventRecorder {
        self.recorder
            .with_component(if key.kind() == "ResourceBinding" {
                "resource-binding-status-controller"
            } else {
                "cluster-resource-binding-status-controller"
            })
    }

    fn record_failure(
        &self,
        key: &BindingStatusKey,
        object: &Object,
        error: &dyn std::fmt::Display,
    ) {
        let about = InvolvedObject::new("work.karmada.io/v1alpha2", key.kind(), object);
        self.recorder_for(key)
            .warning(&about, AGGREGATE_FAILED, error.to_string());
    }

    async fn write_binding(
        &self,
        key: &BindingStatusKey,
        object: &Object,
        binding: &ResourceBinding,
        items: &[AggregatedStatusItem],
    ) -> Result<ReconcileAction, StatusControllersError> {
        let now = rfc3339_seconds(self.clock.now());
        let old = &binding.status;
        let mut status = Map::new();
        if old.aggregated_status != items {
            // An empty list is removed.
            let aggregated = if items.is_empty() {
                Value::Null
            } else {
                json!(items)
            };
            status.insert("aggregatedStatus".into(), aggregated);
        }
        let updated = update_conditions(&binding.spec, &old.conditions, items, &now);
        let news = updated.is_some();
        if let Some(conditions) = updated {
            status.insert("conditions".into(), json!(conditions));
        }
        let fields = (!status.is_empty()).then(|| status.into());
        let writer = StatusWriter::new(&*self.control_plane, "binding-status");
        match writer.patch(key.resource(), object, fields).await {
            Ok(None) => {}
            Ok(Some(written)) => {
                self.expect_write(&self.expectations, key, &written);
                if news {
                    let about = InvolvedObject::new("work.karmada.io/v1alpha2", key.kind(), object);
                    let name = format!("{}({})", key.kind(), key.name);
                    let text = format!("Update {name} with AggregatedStatus successfully.");
                    self.recorder_for(key)
                        .normal(&about, AGGREGATE_SUCCEEDED, text);
                }
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => {
                if !e.is_conflict() {
                    self.record_failure(key, object, &e);
                }
                return Err(e.into());
            }
        }
        Ok(ReconcileAction::Done)
    }

    async fn write_template(
        &self,
        key: &BindingStatusKey,
        binding: &Object,
        spec: &ResourceBindingSpec,
        aggregation: &Aggregation,
    ) -> Result<ReconcileAction, StatusControllersError> {
        let reference = &spec.resource;
        if reference.namespace != binding.namespace() {
            let message = "spec.resource.namespace: must be the namespace of the binding";
            self.record_failure(key, binding, &message);
            return Ok(ReconcileAction::Done);
        }
        let kind = Gvk::from_api_version(&reference.api_version, &reference.kind);
        if self.host.owns_status(&kind) {
            return Ok(ReconcileAction::Done);
        }
        let resource = self.rest_mapper.resource_for(&kind).await?;
        let Some(template) = self.newest_template(key, &resource, reference).await? else {
            return Ok(ReconcileAction::Done);
        };
        let about = InvolvedObject::new(&reference.api_version, &reference.kind, &template);
        let aggregated = self.aggregate_template(key, spec, &kind, &template, aggregation);
        let Some(status) = aggregated.await? else {
            return Ok(ReconcileAction::Done);
        };
        let old = read_status(&template)?.status.unwrap_or_else(|| json!({}));
        let first = old == json!({});
        // Replaces the whole status without reading the rest; the revision is the guard.
        let patch = (!is_same_status(&old, &status)).then(|| Patch::Json(json!([
            {"op": "add", "path": "/metadata/resourceVersion", "value": template.revision().to_string()},
            {"op": "add", "path": "/status", "value": status},
        ])));
        let writer = StatusWriter::new(&*self.control_plane, "template-status");
        match writer.send(&resource, &template, patch).await {
            Ok(None) => {}
            Ok(Some(written)) => {
                self.expect_write(&self.template_expectations, key, &written);
                if first {
                    let text = "Update Resource with AggregatedStatus successfully.";
                    self.recorder_for(key)
                        .normal(&about, AGGREGATE_SUCCEEDED, text);
                }
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => {
                if !e.is_conflict() {
                    self.recorder_for(key)
                        .warning(&about, AGGREGATE_FAILED, e.to_string());
                }
                return Err(e.into());
            }
        }
        Ok(ReconcileAction::Done)
    }

    /// The status of the template as its members report it, or `None` if it stays as it is: the
    /// interpreter has nothing to say, or has failed in a way that only another report or template
    /// mends.
    async fn aggregate_template(
        &self,
        key: &BindingStatusKey,
        spec: &ResourceBindingSpec,
        kind: &Gvk,
        template: &Object,
        aggregation: &Aggregation,
    ) -> Result<Option<Value>, StatusControllersError> {
        let about = InvolvedObject::new(&spec.resource.api_version, &spec.resource.kind, template);
        let recorder = self.recorder_for(key);
        let scheduled = spec.targets().into_iter().map(|target| &*target.name);
        let template_aggregation = TemplateAggregation {
            kind,
            template,
            scheduled: scheduled.collect(),
            now: self.clock.now(),
        };
        let rollout = self.rollouts.get_by_key(&key.name);
        let staged = rollout.and_then(|rollout| StagedStatus::of(&rollout, template));
        let updated = staged.as_ref().map(|s| s.without_outdated(aggregation));
        let items = updated.as_deref().unwrap_or(&aggregation.items);
        let (status, left_out) = match template_aggregation
            .run_usable(&self.interpreter, items)
            .await
        {
            Ok(aggregated) => aggregated,
            Err(error) => {
                let text = error.to_string();
                recorder.warning(&about, AGGREGATE_FAILED, text.clone());
                if error.is_retryable() {
                    return Err(StatusControllersError::InterpreterUnavailable(text));
                }
                return Ok(None);
            }
        };
        if let Some(left_out) = left_out {
            recorder.warning(&about, AGGREGATE_FAILED, left_out);
        }
        Ok(status.map(|mut status| {
            set_revisions(kind, &mut status, staged.as_ref());
            status
        }))
    }

    /// The newest template: the informer's copy if it is new enough, else read from the server.
    async fn newest_template(
        &self,
        key: &BindingStatusKey,
        resource: &Gvr,
        reference: &ObjectReference,
    ) -> Result<Option<Object>, Error> {
        let informer = self
            .informers
            .find(&self.control_plane, &ListWatchSelector::all(resource));
        let copy = informer.and_then(|i| i.get(&reference.namespace, &reference.name));
        if let Some(copy) = copy {
            let referenced: u64 = reference.resource_version.parse().unwrap_or(0);
            if copy.revision() >= referenced && !self.template_expectations.is_ahead_of(key, &copy)
            {
                return Ok(Some(copy));
            }
        }
        let at = ResourcePath::object(resource, &reference.namespace, &reference.name);
        ignore_not_found(self.control_plane.get(at).await)
    }
}

#[derive(Deserialize)]
struct PartialTemplateStatus {
    status: Option<Value>,
}

fn read_status(template: &Object) -> Result<PartialTemplateStatus, Error> {
    machinery::json::from_slice(&template.bytes()).map_err(|e| Error::Protocol(e.to_string()))
}
