//! The automatic failover controller: reacts to the readiness of Clusters, to bindings
//! and to annotations of policies, and starts and ends evictions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Result;
use jiff::Timestamp;
use machinery::Object;
use machinery::time::{Clock, parse};
use openapi::karmada::binding::Metadata;
use openapi::karmada::failover::automatic;
use openapi::karmada::labels::{
    APPLIED_PLACEMENT, BEFORE_FAILOVER, CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE,
};
use openapi::karmada::resources::{CLUSTER_POLICIES, CLUSTERS, POLICIES};
use openapi::karmada::{Binding, Cluster};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Change, Informer, ObjectRef, Queue, Recorder, Select, run_workers};
use serde::Deserialize;
use serde_json::{Value, json};

use super::decide::{Before, Deed, Plan, Sight, State, is_ours, plan, remembered};
use crate::bindings::{Bindings, tell_evicted};
use crate::failover::graceful::until;
use crate::start::Deps;

/// The index of bindings by the key of their policy.
const BY_POLICY: &str = "clusters/policy";
/// The index of bindings by the clusters that this controller evicts them from.
const BY_LEFT: &str = "clusters/left";
const WORKERS: usize = 8;

#[derive(Deserialize)]
struct Annotated {
    metadata: Metadata,
}

pub(in crate::failover) struct Controller {
    bindings: Bindings,
    clusters: Informer,
    /// PropagationPolicies and ClusterPropagationPolicies.
    policies: [Informer; 2],
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    /// Since when each cluster is not Ready; a change from False to Unknown does not
    /// restart it.
    down: Mutex<HashMap<String, Timestamp>>,
    queue: Queue<String>,
}

impl Controller {
    pub(in crate::failover) fn start(deps: &Deps, bindings: &Bindings) {
        let informer = |resource| deps.informers.get(&deps.control, &Select::all(resource));
        bindings.add_index(BY_POLICY, |binding| {
            policy_of(binding).into_iter().collect()
        });
        bindings.add_index(BY_LEFT, left);
        let it = Arc::new(Self {
            bindings: bindings.clone(),
            clusters: informer(&CLUSTERS),
            policies: [informer(&POLICIES), informer(&CLUSTER_POLICIES)],
            clock: Arc::clone(&deps.clock),
            recorder: deps.recorder.named("cluster-failover-controller"),
            down: Mutex::default(),
            queue: Queue::new(),
        });
        it.listen();
        let (tasks, shutdown) = (deps.tasks.clone(), deps.tasks.shutdown().clone());
        deps.tasks.spawn(async move {
            if shutdown.unless(it.wait_synced()).await.is_none() {
                return;
            }
            let queue = it.queue.clone();
            run_workers(&tasks, "failover", &queue, WORKERS, move |key: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            });
        });
    }

    /// A cluster that is not listed yet must not count as deleted.
    async fn wait_synced(&self) {
        self.clusters.wait_synced().await;
        for policies in &self.policies {
            policies.wait_synced().await;
        }
    }

    fn listen(self: &Arc<Self>) {
        let it = Arc::downgrade(self);
        self.clusters.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.cluster_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.bindings.on_change(move |change| {
            if let (Some(it), Some(new)) = (it.upgrade(), change.new)
                && it.concerns(new)
            {
                it.queue.add_lane(change.key(), change.initial);
            }
        });
        for policies in &self.policies {
            let it = Arc::downgrade(self);
            policies.on_change(move |change| {
                if let Some(it) = it.upgrade() {
                    it.policy_changed(change);
                }
            });
        }
    }

    fn cluster_changed(&self, change: &Change<'_>) {
        let name = change.object().name();
        let known = change.new.and_then(|new| self.observe(new));
        let state = known.unwrap_or(State::Gone);
        if !matches!(state, State::Down(_)) {
            self.down.lock().remove(name);
        }
        let before = change.old.and_then(|old| self.observe(old));
        let same = |a: State, b: State| match (a, b) {
            (State::Down(_), State::Down(_)) => true,
            (a, b) => a == b,
        };
        if before.is_some_and(|before| same(before, state)) {
            return;
        }
        match state {
            State::Down(since) => {
                self.down.lock().entry(name.to_owned()).or_insert(since);
                self.look_at(self.bindings.placed_on(name));
            }
            State::Ready => {
                // It may be the first cluster that workloads can move to.
                let down: Vec<String> = self.down.lock().keys().cloned().collect();
                for cluster in down {
                    self.look_at(self.bindings.placed_on(&cluster));
                }
            }
            State::Unheard | State::Gone => {}
        }
        self.look_at(self.bindings.by_index(BY_LEFT, name));
    }

    fn look_at(&self, bindings: Vec<Object>) {
        for binding in bindings {
            self.queue.add(binding.head().key());
        }
    }

    /// The readiness by the Cluster's condition; a time that cannot be parsed counts as
    /// now.
    fn observe(&self, object: &Object) -> Option<State> {
        if object.head().deleting {
            return Some(State::Gone);
        }
        let view = object.view::<Cluster>().ok()?;
        Some(match view.condition("Ready") {
            None => State::Unheard,
            Some(ready) if ready.status == "True" => State::Ready,
            Some(ready) => {
                let since = parse(&ready.last_transition_time);
                State::Down(since.unwrap_or_else(|_| self.clock.now()))
            }
        })
    }

    fn state(&self, cluster: &str) -> State {
        let known = self.clusters.get("", cluster);
        match known.and_then(|c| self.observe(&c)) {
            Some(State::Down(since)) => {
                State::Down(self.down.lock().get(cluster).copied().unwrap_or(since))
            }
            Some(state) => state,
            None => State::Gone,
        }
    }

    fn any_ready(&self) -> bool {
        let is_ready = |c: &Object| self.observe(c) == Some(State::Ready);
        !self.clusters.list_where(is_ready).is_empty()
    }

    /// Whether a binding may need a decision; most bindings do not.
    fn concerns(&self, binding: &Object) -> bool {
        let Ok(view) = binding.view::<Binding>() else {
            return false;
        };
        let (spec, down) = (&view.spec, self.down.lock());
        spec.graceful_eviction_tasks.iter().any(is_ours)
            || spec.clusters.iter().any(|t| down.contains_key(&t.name))
    }

    fn policy_changed(&self, change: &Change<'_>) {
        if change.old.and_then(after) == change.new.and_then(after) {
            return;
        }
        for binding in self.bindings.by_index(BY_POLICY, &change.key()) {
            self.queue.add_lane(binding.head().key(), change.initial);
        }
    }

    async fn reconcile(&self, key: &str) -> Result<Action> {
        let Some(object) = self.bindings.get(key) else {
            return Ok(Action::Done);
        };
        let binding = object.view::<Binding>()?;
        let now = self.clock.now();
        let plan = self.plan(&object, &binding, now);
        let next = plan.next.map_or(Action::Done, |at| until(at, now));
        let annotations = annotations(&binding, &plan);
        let old = &binding.spec;
        let written = self.bindings.write(&object, old, &plan.spec, annotations);
        match written.await {
            Err(e) if e.is_not_found() => return Ok(Action::Done),
            Err(e) if e.is_conflict() => return Ok(Action::AFTER_CONFLICT),
            other => other?,
        }
        for action in &plan.deeds {
            self.tell(&object, &binding, action);
        }
        Ok(next)
    }

    fn plan(&self, object: &Object, binding: &Binding, now: Timestamp) -> Plan {
        let policy = policy_of(object).and_then(|key| self.policy(&key));
        let after = policy.and_then(|policy| after(&policy));
        let context = Sight {
            state: &|cluster| self.state(cluster),
            any_ready: after.is_some() && self.any_ready(),
            after,
            now,
        };
        plan(binding, object.head().generation, &context)
    }

    fn policy(&self, key: &str) -> Option<Object> {
        let [local, of_cluster] = &self.policies;
        let informer = if key.contains('/') { local } else { of_cluster };
        informer.get_key(key)
    }

    fn tell(&self, object: &Object, binding: &Binding, action: &Deed) {
        let about = ObjectRef::of(object);
        match action {
            Deed::Begun(cluster) => self.recorder.warning(
                &about,
                "FailoverBegun",
                format!("Cluster {cluster} stays not Ready: its copy is to be replaced elsewhere."),
            ),
            Deed::CalledOff(cluster) => self.recorder.normal(
                &about,
                "FailoverCalledOff",
                format!("Cluster {cluster} is Ready again: it has its copy back."),
            ),
            Deed::Ended(cluster) => {
                tell_evicted(&self.recorder, object, &binding.spec, cluster, true);
            }
            Deed::Dropped(_) => {}
        }
    }
}

/// The failover delay of a policy; `None` if its annotations are invalid.
fn after(policy: &Object) -> Option<Duration> {
    let view = policy.view::<Annotated>().ok()?;
    automatic(&view.metadata.annotations).ok().flatten()
}

/// The key of a binding's policy: `namespace/name`, or the name of a
/// ClusterPropagationPolicy.
fn policy_of(binding: &Object) -> Option<String> {
    let view = binding.view::<Binding>().ok()?;
    let annotations = &view.metadata.annotations;
    let local = annotations
        .get(POLICY_NAMESPACE)
        .zip(annotations.get(POLICY_NAME));
    local
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .or_else(|| annotations.get(CLUSTER_POLICY_NAME).cloned())
}

fn left(binding: &Object) -> Vec<String> {
    let Ok(view) = binding.view::<Binding>() else {
        return Vec::new();
    };
    let ours = view
        .spec
        .graceful_eviction_tasks
        .iter()
        .filter(|t| is_ours(t));
    ours.map(|t| t.from_cluster.clone()).collect()
}

/// The merge patch of the annotations. A binding with restored targets is scheduled
/// again: much may have changed since they were selected.
fn annotations(binding: &Binding, plan: &Plan) -> Value {
    let mut patch = json!({});
    if plan.before != remembered(binding) {
        patch[BEFORE_FAILOVER] = memory(&plan.before);
    }
    let back = |action: &Deed| matches!(action, Deed::CalledOff(_));
    if plan.deeds.iter().any(back) {
        patch[APPLIED_PLACEMENT] = Value::Null;
    }
    if patch == json!({}) {
        Value::Null
    } else {
        patch
    }
}

fn memory(before: &Before) -> Value {
    match before.is_empty() {
        true => Value::Null,
        false => json!(before).to_string().into(),
    }
}
