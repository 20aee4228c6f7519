//! The shell: which bindings are looked at and when, and what is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Api, At, Error, Patch, WriteOptions};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use openapi::karmada::binding::Condition;
use openapi::karmada::placement::AffinityTerm;
use openapi::karmada::{Binding, Placement, TargetCluster, labels};
use runtime::{
    Action, Change, Informer, Informers, Name, ObjectRef, Queue, Recorder, Select, Tasks,
    run_workers,
};
use serde_json::{Map, Value, json};

use crate::clusters::Clusters;
use crate::core::{Failure, Member, Request};
use crate::decide::{Verdict, judge};
use crate::figures::{self, Incoming, Kind, schedule};

static BINDINGS: Gvr = Gvr::constant("work.karmada.io", "v1alpha2", "resourcebindings");
static CLUSTER_BINDINGS: Gvr =
    Gvr::constant("work.karmada.io", "v1alpha2", "clusterresourcebindings");

const DEFAULT_SCHEDULER: &str = "default-scheduler";
const SUCCEEDED: &str = "Binding has been scheduled successfully.";
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
const RETRY_UNSCHEDULABLE: Duration = Duration::from_secs(300);
/// After a conflict the newer object is about to arrive.
const RETRY_CONFLICT: Duration = Duration::from_millis(5);
const WORKERS: usize = 4;

/// What the scheduler answers to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bindings that name another scheduler are left alone.
    pub name: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: DEFAULT_SCHEDULER.into(),
        }
    }
}

/// A binding: its resource and `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    cluster_scoped: bool,
    name: String,
}

/// A running scheduler.
pub struct Scheduler {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    clusters: Clusters,
    options: Options,
    bindings: Informer,
    cluster_bindings: Informer,
    queue: Queue<Key>,
}

/// What came out of a decision.
struct Outcome {
    targets: Vec<TargetCluster>,
    /// The affinity term that gave the result.
    term: Option<String>,
    failure: Option<Failure>,
}

impl Scheduler {
    /// Starts the scheduler; it ends with `tasks`.
    pub fn start(
        api: Arc<dyn Api>,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
        clusters: Clusters,
        options: Options,
        informers: &Informers,
        tasks: &Tasks,
    ) {
        let scheduler = Arc::new(Self {
            bindings: informers.get(&api, &Select::all(&BINDINGS)),
            cluster_bindings: informers.get(&api, &Select::all(&CLUSTER_BINDINGS)),
            queue: Queue::with_backoff(RETRY.0, RETRY.1),
            api,
            clock,
            recorder,
            clusters,
            options,
        });
        scheduler.listen();
        let queue = scheduler.queue.clone();
        figures::show(move || queue.waiting());
        let (it, workers) = (Arc::clone(&scheduler), tasks.clone());
        tasks.spawn(async move {
            let seen = it.clusters.informer().wait_synced();
            if workers.shutdown().unless(seen).await.is_none() {
                return;
            }
            let queue = it.queue.clone();
            run_workers(
                &workers,
                Name::stage("scheduler", "scheduled"),
                &queue,
                WORKERS,
                move |key: Key| {
                    let it = Arc::clone(&it);
                    async move { it.reconcile(&key).await }
                },
            );
        });
    }

    fn listen(self: &Arc<Self>) {
        for (informer, cluster_scoped) in [(&self.bindings, false), (&self.cluster_bindings, true)]
        {
            let it = Arc::downgrade(self);
            informer.on_change(move |change| {
                if let Some(it) = it.upgrade() {
                    it.binding_changed(cluster_scoped, change);
                }
            });
        }
        let it = Arc::downgrade(self);
        self.clusters.informer().on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.cluster_changed(change);
            }
        });
    }

    /// Whether a binding is ours to schedule.
    fn is_ours(&self, object: &Object) -> bool {
        let head = object.head();
        let labelled = [
            labels::POLICY_ID,
            labels::CLUSTER_POLICY_ID,
            labels::BINDING_MANAGED_BY,
        ]
        .iter()
        .any(|l| head.label(l).is_some_and(|v| !v.is_empty()));
        labelled
            && object.view::<Binding>().is_ok_and(|binding| {
                let name = &binding.spec.scheduler_name;
                let name = if name.is_empty() {
                    DEFAULT_SCHEDULER
                } else {
                    name
                };
                let suspended = binding
                    .spec
                    .suspension
                    .as_ref()
                    .is_some_and(|s| s.scheduling == Some(true));
                name == self.options.name && !suspended
            })
    }

    fn binding_changed(&self, cluster_scoped: bool, change: &Change<'_>) {
        let Some(new) = change.new.filter(|n| self.is_ours(n)) else {
            return;
        };
        let same =
            |old: &Object| old.head().generation == new.head().generation && self.is_ours(old);
        if !change.old.is_some_and(same) {
            figures::came(match change.old {
                Some(_) => Incoming::Update,
                None => Incoming::Add,
            });
            self.queue.add_lane(
                Key {
                    cluster_scoped,
                    name: change.key(),
                },
                change.initial,
            );
        }
    }

    fn cluster_changed(&self, change: &Change<'_>) {
        let Some(new) = change.new else { return };
        let moved = change.old.is_some_and(|old| {
            let (before, after) = (old.head(), new.head());
            after.deleting != before.deleting
                || after.labels != before.labels
                || after.generation != before.generation
        });
        let before = change.old.and_then(|c| Member::new(c.clone()));
        let after = Member::new(new.clone());
        // A kind that is served at last is for what found no cluster before, and for
        // what wants all clusters that serve it.
        let enablements = |m: &Option<Member>| {
            let enablements = m.as_ref().map(|m| &m.cluster.status.api_enablements);
            enablements.cloned().unwrap_or_default()
        };
        let serves_other = enablements(&before) != enablements(&after);
        if !moved && !serves_other {
            return;
        }
        let newly_served = |binding: &Binding| {
            let of = &binding.spec.resource;
            let serves = |m: &Option<Member>| {
                m.as_ref()
                    .is_some_and(|m| m.serves(&of.api_version, &of.kind))
            };
            serves_other && serves(&after) && !serves(&before)
        };
        let versions: Vec<&Member> = before.iter().chain(&after).collect();
        for (informer, cluster_scoped) in [(&self.bindings, false), (&self.cluster_bindings, true)]
        {
            for object in informer.list_where(|o| self.is_ours(o)) {
                let Ok(binding) = object.view::<Binding>() else {
                    continue;
                };
                let affected = moved
                    && versions
                        .iter()
                        .any(|m| concerns(&binding, object.head().generation, m));
                let waiting = serves_other && !is_scheduled(&binding);
                if affected || waiting || newly_served(&binding) {
                    figures::came(Incoming::Cluster);
                    self.queue.add_low(Key {
                        cluster_scoped,
                        name: object.head().key(),
                    });
                }
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let informer = if key.cluster_scoped {
            &self.cluster_bindings
        } else {
            &self.bindings
        };
        let Some(object) = informer.get_key(&key.name) else {
            return Ok(Action::Done);
        };
        let binding = object.view::<Binding>()?;
        if object.head().deleting {
            let text = format!("skip schedule deleting resourceBinding: {}", key.name);
            self.tell(&object, &binding, Err(&text));
            return Ok(Action::Done);
        }
        let Some(placement) = &binding.spec.placement else {
            return Err(Error::Protocol(format!(
                "failed to get placement from resourceBinding({})",
                key.name
            )));
        };
        let resource = if key.cluster_scoped {
            &CLUSTER_BINDINGS
        } else {
            &BINDINGS
        };
        let done = match judge(&binding, placement, &self.clusters.snapshot()) {
            Verdict::Note => self.note(resource, &object, &binding).await,
            Verdict::Schedule { fresh, scale } => {
                let began = Instant::now();
                let outcome = self.decide(&binding, placement, fresh);
                let done = self
                    .place(resource, &object, &binding, placement, &outcome)
                    .await;
                let success = outcome.failure.is_none() && done.is_ok();
                figures::attempted(success, Kind::of(scale), began.elapsed());
                if matches!(outcome.failure, Some(Failure::Error(_))) {
                    figures::came(Incoming::Failure);
                }
                done
            }
        };
        match done {
            Err(e) if e.is_not_found() || e.is_namespace_terminating() => Ok(Action::Done),
            Err(e) if e.is_conflict() => Ok(Action::After(RETRY_CONFLICT)),
            other => other,
        }
    }

    /// Tries the affinity, or its terms from the one that holds the result now.
    fn decide(&self, binding: &Binding, placement: &Placement, fresh: bool) -> Outcome {
        let snapshot = self.clusters.snapshot();
        let attempt = |term: Option<&AffinityTerm>| {
            schedule(
                &Request {
                    spec: &binding.spec,
                    placement,
                    term,
                    fresh,
                },
                &snapshot,
            )
        };
        let terms = &placement.cluster_affinities;
        if terms.is_empty() {
            let (targets, failure) = match attempt(None) {
                Ok(targets) => (targets, None),
                Err(failure) => (Vec::new(), Some(failure)),
            };
            return Outcome {
                targets,
                term: None,
                failure,
            };
        }
        let observed = terms
            .iter()
            .position(|t| t.affinity_name == binding.status.observed_affinity);
        let start = if fresh { 0 } else { observed.unwrap_or(0) };
        let mut first = None;
        for term in &terms[start..] {
            match attempt(Some(term)) {
                Ok(targets) => {
                    return Outcome {
                        targets,
                        term: Some(term.affinity_name.clone()),
                        failure: None,
                    };
                }
                Err(failure) => first = first.or(Some(failure)),
            }
        }
        Outcome {
            targets: Vec::new(),
            term: None,
            failure: first,
        }
    }

    async fn place(
        &self,
        resource: &Gvr,
        object: &Object,
        binding: &Binding,
        placement: &Placement,
        outcome: &Outcome,
    ) -> Result<Action, Error> {
        let mut generation = object.head().generation;
        let mut current = object.clone();
        // Where nothing fits the old result is withdrawn; other failures leave it.
        let writes = matches!(outcome.failure, None | Some(Failure::NoFit(_)));
        let changed = writes && binding_differs(binding, placement, &outcome.targets)?;
        if changed {
            current = self
                .write_result(resource, object, placement, &outcome.targets)
                .await?;
            generation = current.head().generation;
        }
        let news = changed || !is_told(binding, outcome);
        if news {
            let told = outcome.failure.as_ref().map(ToString::to_string);
            match &told {
                None => self.tell(object, binding, Ok(&outcome.targets)),
                Some(text) => self.tell(object, binding, Err(text)),
            }
        }
        let status = self.status_after(outcome, generation, news);
        self.write_status(resource, &current, status).await?;
        match &outcome.failure {
            None | Some(Failure::NoFit(_)) => Ok(Action::Done),
            Some(Failure::Unschedulable(_)) => Ok(Action::After(RETRY_UNSCHEDULABLE)),
            Some(Failure::Error(text)) => Err(Error::Protocol(text.clone())),
        }
    }

    async fn write_result(
        &self,
        resource: &Gvr,
        object: &Object,
        placement: &Placement,
        targets: &[TargetCluster],
    ) -> Result<Object, Error> {
        let clusters = if targets.is_empty() {
            Value::Null
        } else {
            encode(&targets)?
        };
        let patch = json!({
            "metadata": {"resourceVersion": object.revision().to_string(),
                         "annotations": {labels::APPLIED_PLACEMENT: placement_text(placement)?}},
            "spec": {"clusters": clusters},
        });
        self.api
            .patch(
                At::of(resource, object),
                Patch::Merge(patch),
                &WriteOptions::default(),
            )
            .await
    }

    fn status_after(&self, outcome: &Outcome, generation: i64, news: bool) -> Map<String, Value> {
        let mut status = Map::new();
        let (verdict, reason, message) = match &outcome.failure {
            None => ("True", "Success", SUCCEEDED.to_owned()),
            Some(failure @ Failure::NoFit(_)) => ("False", "NoClusterFit", failure.to_string()),
            Some(failure @ Failure::Unschedulable(_)) => {
                ("False", "Unschedulable", failure.to_string())
            }
            Some(failure @ Failure::Error(_)) => ("False", "SchedulerError", failure.to_string()),
        };
        let now = rfc3339_seconds(self.clock.now());
        let condition = json!({"type": "Scheduled", "status": verdict, "reason": reason, "message": message, "lastTransitionTime": now});
        status.insert("conditions".into(), json!([condition]));
        if outcome.failure.is_none() {
            status.insert("schedulerObservedGeneration".into(), generation.into());
            if news {
                status.insert("lastScheduledTime".into(), now.into());
            }
            if let Some(term) = &outcome.term {
                status.insert(
                    "schedulerObservingAffinityName".into(),
                    term.as_str().into(),
                );
            }
        }
        status
    }

    async fn note(
        &self,
        resource: &Gvr,
        object: &Object,
        binding: &Binding,
    ) -> Result<Action, Error> {
        let generation = object.head().generation;
        if binding.status.scheduler_observed_generation != generation {
            let status =
                Map::from_iter([("schedulerObservedGeneration".to_owned(), generation.into())]);
            self.write_status(resource, object, status).await?;
        }
        Ok(Action::Done)
    }

    /// Patches what differs; a single condition is merged with those of others.
    async fn write_status(
        &self,
        resource: &Gvr,
        object: &Object,
        mut status: Map<String, Value>,
    ) -> Result<(), Error> {
        let value = object.value()?;
        let old = &value["status"];
        if let Some(condition) = status.get_mut("conditions") {
            let merged = merge_condition(&old["conditions"], condition[0].take());
            *condition = merged;
        }
        status.retain(|field, value| old[field] != *value);
        if status.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": object.revision().to_string()}, "status": status});
        let at = At::of(resource, object).sub("status");
        self.api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
            .map(drop)
    }

    fn tell(&self, object: &Object, binding: &Binding, result: Result<&[TargetCluster], &str>) {
        let template = &binding.spec.resource;
        let on_template = ObjectRef {
            api_version: template.api_version.clone(),
            kind: template.kind.clone(),
            namespace: template.namespace.clone(),
            name: template.name.clone(),
            uid: template.uid.clone(),
            resource_version: String::new(),
        };
        for about in [ObjectRef::of(object), on_template] {
            match result {
                Ok(targets) => {
                    let all: Vec<String> = targets
                        .iter()
                        .map(|t| format!("{}:{}", t.name, t.replicas))
                        .collect();
                    // The two kinds are told apart by a colon.
                    let colon = if object.namespace().is_empty() {
                        ""
                    } else {
                        ":"
                    };
                    let text = format!("{SUCCEEDED} Result{colon} {{{}}}", all.join(", "));
                    self.recorder.normal(&about, "ScheduleBindingSucceed", text);
                }
                Err(text) => self.recorder.warning(&about, "ScheduleBindingFailed", text),
            }
        }
    }
}

/// The annotation that says which placement a result belongs to.
pub fn placement_text(placement: &Placement) -> Result<String, Error> {
    serde_json::to_string(placement).map_err(|e| Error::Protocol(e.to_string()))
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|e| Error::Protocol(e.to_string()))
}

fn binding_differs(
    binding: &Binding,
    placement: &Placement,
    targets: &[TargetCluster],
) -> Result<bool, Error> {
    let applied = binding.metadata.annotations.get(labels::APPLIED_PLACEMENT);
    Ok(!same_targets(&binding.spec.clusters, targets)
        || applied != Some(&placement_text(placement)?))
}

/// The order tells how the clusters ranked when they were chosen; that it would be
/// another one today moves nothing.
fn same_targets(old: &[TargetCluster], new: &[TargetCluster]) -> bool {
    old.len() == new.len() && new.iter().all(|t| old.contains(t))
}

fn scheduled_condition(binding: &Binding) -> Option<&Condition> {
    binding
        .status
        .conditions
        .iter()
        .find(|c| c.kind == "Scheduled")
}

fn is_scheduled(binding: &Binding) -> bool {
    scheduled_condition(binding).is_some_and(|c| c.status == "True")
}

/// Whether the condition says already what came out.
fn is_told(binding: &Binding, outcome: &Outcome) -> bool {
    scheduled_condition(binding).is_some_and(|c| match &outcome.failure {
        None => c.status == "True",
        Some(failure) => c.status == "False" && c.message == failure.to_string(),
    })
}

/// Whether a change of a cluster concerns a binding.
fn concerns(binding: &Binding, generation: i64, member: &Member) -> bool {
    let Some(placement) = &binding.spec.placement else {
        return false;
    };
    let affinity = if placement.cluster_affinities.is_empty() {
        placement.cluster_affinity.as_ref()
    } else {
        if binding.status.scheduler_observed_generation != generation {
            return true;
        }
        let observed = &binding.status.observed_affinity;
        match placement
            .cluster_affinities
            .iter()
            .find(|t| t.affinity_name == *observed)
        {
            Some(term) => Some(&term.affinity),
            None => return false,
        }
    };
    affinity.is_none_or(|a| a.matcher().matches(&member.facts()))
}

/// Puts a condition among the others; one that says the same keeps its time.
fn merge_condition(all: &Value, mut condition: Value) -> Value {
    let mut all = all.as_array().cloned().unwrap_or_default();
    match all.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(old) => {
            if old["status"] == condition["status"] {
                condition["lastTransitionTime"] = old["lastTransitionTime"].take();
            }
            *old = condition;
        }
        None => all.push(condition),
    }
    all.into()
}

#[cfg(test)]
mod tests;
