//! Writes the outcome of a decision: the result, the Scheduled condition and the events.

use client::{At, Error, Patch, WriteOptions};
use machinery::Object;
use machinery::time::rfc3339_seconds;
use openapi::karmada::binding::Condition;
use openapi::karmada::{Binding, Placement, TargetCluster, labels};
use flotilla_runtime::{Action, ObjectRef};
use serde_json::{Map, Value, json};

use super::{Case, RETRY_UNSCHEDULABLE, Scheduler};
use crate::book::Entry;
use crate::core::Failure;
use crate::decide::{FailedTerm, Outcome};

const SUCCEEDED: &str = "Binding has been scheduled successfully.";
/// The reason with which admission rejects a result that exceeds a FederatedResourceQuota.
const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// The content of the Scheduled condition.
struct Told {
    success: bool,
    reason: &'static str,
    message: String,
}

impl Told {
    fn success() -> Self {
        Self {
            success: true,
            reason: "Success",
            message: SUCCEEDED.to_owned(),
        }
    }

    fn of(outcome: &Outcome) -> Self {
        let Some(failure) = &outcome.failure else {
            return Self::success();
        };
        let reason = match failure {
            Failure::NoFit(_) => "NoClusterFit",
            Failure::Unschedulable(_) => "Unschedulable",
            Failure::Error(_) => "SchedulerError",
        };
        Self {
            success: false,
            reason,
            message: failure.to_string(),
        }
    }

    /// The condition after the result could not be written.
    fn of_write(outcome: &Outcome, error: &Error) -> Self {
        let refused = error.status();
        let by_quota = refused.is_some_and(|s| s.code == 403 && s.reason == QUOTA_EXCEEDED);
        let (reason, message) = match &outcome.failure {
            Some(failure) => ("NoClusterFit", format!("[{failure}, {error}]")),
            None if by_quota => (QUOTA_EXCEEDED, error.to_string()),
            None => ("SchedulerError", error.to_string()),
        };
        Self {
            success: false,
            reason,
            message,
        }
    }

    /// Whether the binding already has this condition.
    fn is_known(&self, binding: &Binding) -> bool {
        scheduled_condition(binding).is_some_and(|c| {
            if self.success {
                c.status == "True"
            } else {
                c.status == "False" && c.message == self.message
            }
        })
    }

    fn status(&self, now: &str) -> Map<String, Value> {
        let value = if self.success { "True" } else { "False" };
        let condition = json!({"type": "Scheduled", "status": value, "reason": self.reason,
            "message": self.message, "lastTransitionTime": now});
        Map::from_iter([("conditions".to_owned(), json!([condition]))])
    }
}

impl Case<'_> {
    /// Whether the result or its placement differs from what the binding has.
    pub(super) fn differs(&self, targets: &[TargetCluster]) -> Result<bool, Error> {
        let applied = self
            .binding
            .metadata
            .annotations
            .get(labels::APPLIED_PLACEMENT);
        Ok(!same_targets(&self.binding.spec.clusters, targets)
            || applied != Some(&placement_text(self.placement)?))
    }
}

impl Scheduler {
    /// Writes the result of a decision, its condition and its events, and returns when to
    /// try again. `entry` is what the assume cache held before the decision.
    pub(super) async fn settle(
        &self,
        case: &Case<'_>,
        outcome: &Outcome,
        entry: Option<Entry>,
        fresh: bool,
    ) -> Result<Action, Error> {
        let resource = case.key.resource();
        let mut current = case.object.clone();
        let changed = outcome.is_result() && case.differs(&outcome.targets)?;
        if changed {
            let written = self.write_result(case, &outcome.targets).await;
            self.enter_fate(case, entry, &written);
            current = match written {
                Ok(current) => current,
                Err(error) => return Err(self.refused(case, outcome, error).await),
            };
        }
        let condition = Told::of(outcome);
        // A triggered reschedule counts as done even if it changed nothing.
        let news = changed || fresh || case.placed_by_detector || !condition.is_known(case.binding);
        if news {
            self.tell_terms(case, &outcome.failed_terms);
            match &outcome.failure {
                None => self.tell(case.object, case.binding, Ok(&outcome.targets)),
                Some(failure) if outcome.failed_terms.is_empty() || outcome.is_result() => {
                    self.tell(case.object, case.binding, Err(&failure.to_string()));
                }
                Some(_) => {}
            }
        }
        let now = rfc3339_seconds(self.clock.now());
        let mut status = condition.status(&now);
        if condition.success {
            let generation = current.head().generation;
            status.insert("schedulerObservedGeneration".into(), generation.into());
            // Clients of Karmada wait for the time to change after a repeated decision.
            if news || case.stirred {
                status.insert("lastScheduledTime".into(), now.into());
            }
            if let Some(term) = &outcome.term {
                let term = term.as_str();
                status.insert("schedulerObservingAffinityName".into(), term.into());
            }
        }
        self.write_status(resource, &current, status).await?;
        match &outcome.failure {
            None | Some(Failure::NoFit(_)) => Ok(Action::Done),
            Some(Failure::Unschedulable(_)) if self.keeps_unschedulable() => {
                Ok(Action::After(RETRY_UNSCHEDULABLE))
            }
            Some(failure) => Err(Error::Protocol(failure.to_string())),
        }
    }

    fn enter_fate(&self, case: &Case<'_>, entry: Option<Entry>, written: &Result<Object, Error>) {
        let Some(entry) = entry else { return };
        let key = &case.key.name;
        let copy = self.informer(case.key).get_key(key);
        let mut book = self.book.lock();
        match written {
            Ok(object) => book.written(key, object.revision(), copy.map_or(0, |c| c.revision())),
            Err(_) => book.undo(key, entry),
        }
    }

    /// Reports why a result could not be written, unless the binding is gone or is about to
    /// be scheduled again.
    async fn refused(&self, case: &Case<'_>, outcome: &Outcome, error: Error) -> Error {
        if error.is_conflict() || error.is_not_found() || error.is_namespace_terminating() {
            return error;
        }
        let condition = Told::of_write(outcome, &error);
        if !condition.is_known(case.binding) {
            self.tell(case.object, case.binding, Err(&condition.message));
        }
        let status = condition.status(&rfc3339_seconds(self.clock.now()));
        let write = self.write_status(case.key.resource(), case.object, status);
        match write.await {
            Ok(()) => error,
            Err(unwritten) => unwritten,
        }
    }

    async fn write_result(
        &self,
        case: &Case<'_>,
        targets: &[TargetCluster],
    ) -> Result<Object, Error> {
        let clusters = if targets.is_empty() {
            Value::Null
        } else {
            encode(&targets)?
        };
        let patch = json!({
            "metadata": {"resourceVersion": case.object.revision().to_string(),
                         "annotations": {labels::APPLIED_PLACEMENT: placement_text(case.placement)?}},
            "spec": {"clusters": clusters},
        });
        let at = At::of(case.key.resource(), case.object);
        self.api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
    }

    /// Records that this generation needs no decision, and the result of the detector if it
    /// wrote one.
    pub(super) async fn note(&self, case: &Case<'_>) -> Result<Action, Error> {
        let generation = case.object.head().generation;
        let mut status = Map::new();
        if case.placed_by_detector {
            let now = rfc3339_seconds(self.clock.now());
            status = Told::success().status(&now);
            status.insert("lastScheduledTime".into(), now.into());
        }
        status.insert("schedulerObservedGeneration".into(), generation.into());
        self.write_status(case.key.resource(), case.object, status)
            .await?;
        if case.placed_by_detector {
            let targets = &case.binding.spec.clusters;
            self.tell(case.object, case.binding, Ok(targets));
        }
        Ok(Action::Done)
    }

    /// Patches the fields that differ; a single condition is merged with the others.
    async fn write_status(
        &self,
        resource: &machinery::Gvr,
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

    fn tell_terms(&self, case: &Case<'_>, failed: &[FailedTerm]) {
        let kind = if case.key.cluster_scoped {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        };
        for FailedTerm { index, failure, .. } in failed {
            let name = &case.key.name;
            let text = format!(
                "failed to schedule {kind}({name}) with clusterAffiliates index({index}): {failure}"
            );
            self.tell(case.object, case.binding, Err(&text));
        }
    }

    /// Records an event on the binding and on its template.
    pub(super) fn tell(
        &self,
        object: &Object,
        binding: &Binding,
        result: Result<&[TargetCluster], &str>,
    ) {
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
                    // As in Karmada, only the text for a ResourceBinding has a colon.
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

/// The value of the applied-placement annotation: the placement that a result belongs to.
pub fn placement_text(placement: &Placement) -> Result<String, Error> {
    serde_json::to_string(placement).map_err(|e| Error::Protocol(e.to_string()))
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|e| Error::Protocol(e.to_string()))
}

/// Compares targets regardless of their order: it reflects the ranking at the time of the
/// decision, and a new ranking alone must not cause a write.
fn same_targets(old: &[TargetCluster], new: &[TargetCluster]) -> bool {
    if old.len() != new.len() {
        return false;
    }
    let by_name = |targets: &[TargetCluster]| -> Vec<TargetCluster> {
        let mut targets = targets.to_vec();
        targets.sort_by(|a, b| a.name.cmp(&b.name));
        targets
    };
    old == new || by_name(old) == by_name(new)
}

fn scheduled_condition(binding: &Binding) -> Option<&Condition> {
    binding
        .status
        .conditions
        .iter()
        .find(|c| c.kind == "Scheduled")
}

pub(super) fn is_scheduled(binding: &Binding) -> bool {
    scheduled_condition(binding).is_some_and(|c| c.status == "True")
}

/// Replaces or adds a condition; one with the same status keeps its transition time.
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
