//! The automatic failover controller: reacts to the readiness of Clusters, to bindings
//! and to annotations of policies, and starts and ends evictions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Informer, InformerEvent, InvolvedObject, Result};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers_after,
};
use jiff::Timestamp;
use karmada_api::failover::automatic_failover_delay;
use karmada_api::resources::{CLUSTER_POLICIES, CLUSTERS, POLICIES};
use karmada_api::well_known_keys::{
    APPLIED_PLACEMENT, BEFORE_FAILOVER, CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE,
};
use karmada_api::{Cluster, ResourceBinding};
use machinery::Object;
use machinery::time::{Clock, parse};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::reconcile::{
    AutoFailoverInputs, BindingFailoverDecision, ClusterReadiness, FailoverTransition,
    TargetsBeforeFailoverByCluster, decide_failover, is_own_task, saved_targets,
};
use crate::bindings::{BindingClient, record_eviction};
use crate::failover::graceful::requeue_at;

/// The index of bindings by the key of their policy.
const POLICY_INDEX: &str = "clusters/policy";
/// The index of bindings by the clusters that this controller evicts them from.
const EVICTED_CLUSTER_INDEX: &str = "clusters/left";
const WORKERS: usize = 8;

pub(in crate::failover) struct AutoFailoverController {
    bindings: BindingClient,
    clusters: Informer,
    /// PropagationPolicies and ClusterPropagationPolicies.
    policies: [Informer; 2],
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    /// Since when each cluster is not Ready; a change from False to Unknown does not
    /// restart it.
    not_ready_since: Mutex<HashMap<String, Timestamp>>,
    queue: Workqueue<String>,
}

impl AutoFailoverController {
    pub(in crate::failover) fn start(context: &ControllerContext) {
        let bindings = BindingClient::new(context);
        bindings.add_index(POLICY_INDEX, |binding| {
            policy_key(binding).into_iter().collect()
        });
        bindings.add_index(EVICTED_CLUSTER_INDEX, evicted_clusters);
        let controller = Arc::new(Self {
            bindings,
            clusters: context.informer(&CLUSTERS),
            policies: [
                context.informer(&POLICIES),
                context.informer(&CLUSTER_POLICIES),
            ],
            clock: Arc::clone(&context.clock),
            recorder: context
                .recorder
                .with_component("cluster-failover-controller"),
            not_ready_since: Mutex::default(),
            queue: Workqueue::new(),
        });
        controller.add_event_handlers();
        let (waiting, queue) = (Arc::clone(&controller), controller.queue.clone());
        run_workers_after(
            &context.tasks,
            async move { waiting.wait_for_cache_sync().await },
            "failover",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    /// A cluster that is not listed yet must not count as deleted.
    async fn wait_for_cache_sync(&self) {
        self.clusters.wait_for_cache_sync().await;
        for policies in &self.policies {
            policies.wait_for_cache_sync().await;
        }
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let controller = Arc::downgrade(self);
        self.clusters.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.cluster_changed(change);
            }
        });
        let controller = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let (Some(controller), Some(new)) = (controller.upgrade(), change.new)
                && controller.may_need_failover(new)
            {
                controller.queue.add_event(change.key(), change);
            }
        });
        for policies in &self.policies {
            let controller = Arc::downgrade(self);
            policies.add_event_handler(move |change| {
                if let Some(controller) = controller.upgrade() {
                    controller.policy_changed(change);
                }
            });
        }
    }

    fn cluster_changed(&self, change: &InformerEvent<'_>) {
        let name = change.object().name();
        let readiness = change.new.and_then(|new| self.observed_readiness(new));
        let state = readiness.unwrap_or(ClusterReadiness::Deleted);
        if !matches!(state, ClusterReadiness::NotReady(_)) {
            self.not_ready_since.lock().remove(name);
        }
        let before = change.old.and_then(|old| self.observed_readiness(old));
        let same = |a: ClusterReadiness, b: ClusterReadiness| match (a, b) {
            (ClusterReadiness::NotReady(_), ClusterReadiness::NotReady(_)) => true,
            (a, b) => a == b,
        };
        if before.is_some_and(|before| same(before, state)) {
            return;
        }
        match state {
            ClusterReadiness::NotReady(since) => {
                self.not_ready_since
                    .lock()
                    .entry(name.to_owned())
                    .or_insert(since);
                self.enqueue_bindings(self.bindings.scheduled_to(name));
            }
            ClusterReadiness::Ready => {
                // It may be the first cluster that workloads can move to.
                let down: Vec<String> = self.not_ready_since.lock().keys().cloned().collect();
                for cluster in down {
                    self.enqueue_bindings(self.bindings.scheduled_to(&cluster));
                }
            }
            ClusterReadiness::NeverReported | ClusterReadiness::Deleted => {}
        }
        self.enqueue_bindings(self.bindings.by_index(EVICTED_CLUSTER_INDEX, name));
    }

    fn enqueue_bindings(&self, bindings: Vec<Object>) {
        for binding in bindings {
            self.queue.add(binding.meta().key());
        }
    }

    /// The readiness by the Cluster's condition; a time that cannot be parsed counts as
    /// now.
    fn observed_readiness(&self, object: &Object) -> Option<ClusterReadiness> {
        if object.meta().deleting {
            return Some(ClusterReadiness::Deleted);
        }
        let view = object.decode::<Cluster>().ok()?;
        Some(match view.condition("Ready") {
            None => ClusterReadiness::NeverReported,
            Some(ready) if ready.status == "True" => ClusterReadiness::Ready,
            Some(ready) => {
                let since = parse(&ready.last_transition_time);
                ClusterReadiness::NotReady(since.unwrap_or_else(|_| self.clock.now()))
            }
        })
    }

    fn readiness(&self, cluster: &str) -> ClusterReadiness {
        let object = self.clusters.get("", cluster);
        match object.and_then(|c| self.observed_readiness(&c)) {
            Some(ClusterReadiness::NotReady(since)) => ClusterReadiness::NotReady(
                self.not_ready_since
                    .lock()
                    .get(cluster)
                    .copied()
                    .unwrap_or(since),
            ),
            Some(state) => state,
            None => ClusterReadiness::Deleted,
        }
    }

    fn any_ready(&self) -> bool {
        let is_ready = |c: &Object| self.observed_readiness(c) == Some(ClusterReadiness::Ready);
        !self.clusters.list_where(is_ready).is_empty()
    }

    /// Whether a binding may need a decision; most bindings do not.
    fn may_need_failover(&self, binding: &Object) -> bool {
        let Ok(view) = binding.decode::<ResourceBinding>() else {
            return false;
        };
        let (spec, down) = (&view.spec, self.not_ready_since.lock());
        spec.graceful_eviction_tasks.iter().any(is_own_task)
            || spec.clusters.iter().any(|t| down.contains_key(&t.name))
    }

    fn policy_changed(&self, change: &InformerEvent<'_>) {
        if change.old.and_then(failover_delay) == change.new.and_then(failover_delay) {
            return;
        }
        for binding in self.bindings.by_index(POLICY_INDEX, &change.key()) {
            self.queue.add_event(binding.meta().key(), change);
        }
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction> {
        let Some(object) = self.bindings.get(key) else {
            return Ok(ReconcileAction::Done);
        };
        let binding = object.decode::<ResourceBinding>()?;
        let now = self.clock.now();
        let plan = self.plan_failover(&object, &binding, now);
        let next = plan
            .next_deadline
            .map_or(ReconcileAction::Done, |at| requeue_at(at, now));
        let annotations = annotations_patch(&binding, &plan);
        let old = &binding.spec;
        let written = self
            .bindings
            .patch_spec(&object, old, &plan.spec, annotations);
        match written.await {
            Err(e) if e.is_not_found() => return Ok(ReconcileAction::Done),
            Err(e) if e.is_conflict() => return Ok(ReconcileAction::AFTER_CONFLICT),
            other => other?,
        }
        for action in &plan.transitions {
            self.record_transition(&object, &binding, action);
        }
        Ok(next)
    }

    fn plan_failover(
        &self,
        object: &Object,
        binding: &ResourceBinding,
        now: Timestamp,
    ) -> BindingFailoverDecision {
        let policy = policy_key(object).and_then(|key| self.get_policy(&key));
        let after = policy.and_then(|policy| failover_delay(&policy));
        let context = AutoFailoverInputs {
            readiness: &|cluster| self.readiness(cluster),
            any_ready: after.is_some() && self.any_ready(),
            delay: after,
            now,
        };
        decide_failover(binding, object.meta().generation, &context)
    }

    fn get_policy(&self, key: &str) -> Option<Object> {
        let [local, of_cluster] = &self.policies;
        let informer = if key.contains('/') { local } else { of_cluster };
        informer.get_by_key(key)
    }

    fn record_transition(
        &self,
        object: &Object,
        binding: &ResourceBinding,
        action: &FailoverTransition,
    ) {
        let about = InvolvedObject::from_object(object);
        match action {
            FailoverTransition::Started(cluster) => self.recorder.warning(
                &about,
                "FailoverBegun",
                format!("Cluster {cluster} stays not Ready: its copy is to be replaced elsewhere."),
            ),
            FailoverTransition::Canceled(cluster) => self.recorder.normal(
                &about,
                "FailoverCalledOff",
                format!("Cluster {cluster} is Ready again: it has its copy back."),
            ),
            FailoverTransition::Completed(cluster) => {
                record_eviction(&self.recorder, object, &binding.spec, cluster, true);
            }
            FailoverTransition::Abandoned(_) => {}
        }
    }
}

/// The failover delay of a policy; `None` if its annotations are invalid.
fn failover_delay(policy: &Object) -> Option<Duration> {
    let delay = automatic_failover_delay(&policy.annotations());
    delay.ok().flatten()
}

/// The key of a binding's policy: `namespace/name`, or the name of a
/// ClusterPropagationPolicy.
fn policy_key(binding: &Object) -> Option<String> {
    let view = binding.decode::<ResourceBinding>().ok()?;
    let annotations = &view.metadata.annotations;
    let local = annotations
        .get(POLICY_NAMESPACE)
        .zip(annotations.get(POLICY_NAME));
    local
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .or_else(|| annotations.get(CLUSTER_POLICY_NAME).cloned())
}

fn evicted_clusters(binding: &Object) -> Vec<String> {
    let Ok(view) = binding.decode::<ResourceBinding>() else {
        return Vec::new();
    };
    let own_tasks = view
        .spec
        .graceful_eviction_tasks
        .iter()
        .filter(|t| is_own_task(t));
    own_tasks.map(|t| t.from_cluster.clone()).collect()
}

/// The merge patch of the annotations. A binding with restored targets is scheduled
/// again: much may have changed since they were selected.
fn annotations_patch(binding: &ResourceBinding, plan: &BindingFailoverDecision) -> Value {
    let mut patch = json!({});
    if plan.targets_before != saved_targets(binding) {
        patch[BEFORE_FAILOVER] = saved_targets_annotation(&plan.targets_before);
    }
    let back = |action: &FailoverTransition| matches!(action, FailoverTransition::Canceled(_));
    if plan.transitions.iter().any(back) {
        patch[APPLIED_PLACEMENT] = Value::Null;
    }
    if patch == json!({}) {
        Value::Null
    } else {
        patch
    }
}

fn saved_targets_annotation(before: &TargetsBeforeFailoverByCluster) -> Value {
    match before.is_empty() {
        true => Value::Null,
        false => json!(before).to_string().into(),
    }
}
