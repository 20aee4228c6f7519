//! Writes the outcome of a decision: the result, the Scheduled condition and the events.

use client::{Error, InvolvedObject, Patch, ResourcePath, WriteOptions};
use flotilla_runtime::{ReconcileAction, StatusWriter};
use karmada_api::binding::{Condition, PLACED_NOWHERE};
use karmada_api::{Placement, ResourceBinding, TargetCluster, well_known_keys};
use machinery::Object;
use machinery::conditions::set_json_condition;
use machinery::time::rfc3339_seconds;
use serde_json::{Map, Value, json};

use super::{Scheduler, SchedulingTask, UNSCHEDULABLE_RETRY_INTERVAL};
use crate::assume_cache::PreviousAssumption;
use crate::core::SchedulingFailure;
use crate::reconcile::{FailedAffinityTerm, ScheduleResult};

const SCHEDULE_SUCCEEDED_MESSAGE: &str = "Binding has been scheduled successfully.";
const PLACED_NOWHERE_MESSAGE: &str = "Binding is placed in no cluster, as its placement says.";
/// The reason with which admission rejects a result that exceeds a FederatedResourceQuota.
const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// The content of the Scheduled condition.
struct ScheduledCondition {
    success: bool,
    reason: &'static str,
    message: String,
}

impl ScheduledCondition {
    fn success() -> Self {
        Self {
            success: true,
            reason: "Success",
            message: SCHEDULE_SUCCEEDED_MESSAGE.to_owned(),
        }
    }

    /// The condition of a binding whose placement selects no cluster on purpose.
    fn nowhere() -> Self {
        Self {
            success: true,
            reason: PLACED_NOWHERE,
            message: PLACED_NOWHERE_MESSAGE.to_owned(),
        }
    }

    fn from_result(outcome: &ScheduleResult, placement: &Placement) -> Self {
        let Some(failure) = &outcome.failure else {
            return Self::success();
        };
        if is_placed_nowhere(outcome, placement) {
            return Self::nowhere();
        }
        let reason = match failure {
            SchedulingFailure::NoFit(_) => "NoClusterFit",
            SchedulingFailure::Unschedulable(_) => "Unschedulable",
            SchedulingFailure::Error(_) => "SchedulerError",
        };
        Self {
            success: false,
            reason,
            message: failure.to_string(),
        }
    }

    /// The condition after the result could not be written.
    fn from_write_error(outcome: &ScheduleResult, error: &Error) -> Self {
        let status = error.status();
        let by_quota = status.is_some_and(|s| s.code == 403 && s.reason == QUOTA_EXCEEDED);
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
    fn is_reported(&self, binding: &ResourceBinding) -> bool {
        scheduled_condition(binding).is_some_and(|c| {
            if self.success {
                c.status == "True"
                    && (c.reason == PLACED_NOWHERE) == (self.reason == PLACED_NOWHERE)
            } else {
                c.status == "False" && c.message == self.message
            }
        })
    }

    fn to_status_patch(&self, now: &str) -> Map<String, Value> {
        let value = if self.success { "True" } else { "False" };
        let condition = json!({"type": "Scheduled", "status": value, "reason": self.reason,
            "message": self.message, "lastTransitionTime": now});
        Map::from_iter([("conditions".to_owned(), json!([condition]))])
    }
}

/// Whether no cluster fits because the placement wants none.
fn is_placed_nowhere(outcome: &ScheduleResult, placement: &Placement) -> bool {
    matches!(outcome.failure, Some(SchedulingFailure::NoFit(_))) && placement.is_nowhere()
}

impl SchedulingTask<'_> {
    /// Whether the result or its placement differs from what the binding has.
    pub(super) fn result_differs(&self, targets: &[TargetCluster]) -> Result<bool, Error> {
        let applied = self
            .binding
            .metadata
            .annotations
            .get(well_known_keys::APPLIED_PLACEMENT);
        Ok(!same_targets(&self.binding.spec.clusters, targets)
            || applied != Some(&encode_placement(self.placement)?))
    }
}

impl Scheduler {
    /// Writes the result of a decision, its condition and its events, and returns when to
    /// try again. `entry` is what the assume cache held before the decision.
    pub(super) async fn apply_result(
        &self,
        case: &SchedulingTask<'_>,
        outcome: &ScheduleResult,
        entry: Option<PreviousAssumption>,
        fresh: bool,
    ) -> Result<ReconcileAction, Error> {
        let resource = case.key.resource();
        let mut current = case.object.clone();
        let changed = outcome.is_result() && case.result_differs(&outcome.targets)?;
        if changed {
            let written = self.write_result(case, &outcome.targets).await;
            self.finish_assumed(case, entry, &written);
            current = match written {
                Ok(current) => current,
                Err(error) => return Err(self.report_write_failure(case, outcome, error).await),
            };
        }
        let condition = ScheduledCondition::from_result(outcome, case.placement);
        // A triggered reschedule counts as done even if it changed nothing.
        let news =
            changed || fresh || case.placed_by_detector || !condition.is_reported(case.binding);
        if news {
            if !condition.success || outcome.failure.is_none() {
                self.record_failed_terms(case, &outcome.failed_terms);
            }
            match &outcome.failure {
                Some(_) if condition.success => {
                    self.record_event(case.object, case.binding, Ok(&[]));
                }
                None => self.record_event(case.object, case.binding, Ok(&outcome.targets)),
                Some(failure) if outcome.failed_terms.is_empty() || outcome.is_result() => {
                    self.record_event(case.object, case.binding, Err(&failure.to_string()));
                }
                Some(_) => {}
            }
        }
        let now = rfc3339_seconds(self.clock.now());
        let mut status = condition.to_status_patch(&now);
        if condition.success {
            let generation = current.meta().generation;
            status.insert("schedulerObservedGeneration".into(), generation.into());
            // Clients of Karmada wait for the time to change after a repeated decision.
            if news || case.cluster_changed {
                status.insert("lastScheduledTime".into(), now.into());
            }
            if let Some(term) = &outcome.term {
                let term = term.as_str();
                status.insert("schedulerObservingAffinityName".into(), term.into());
            }
        }
        self.write_status(resource, &current, status).await?;
        match &outcome.failure {
            None | Some(SchedulingFailure::NoFit(_)) => Ok(ReconcileAction::Done),
            Some(SchedulingFailure::Unschedulable(_)) if self.has_unschedulable_queue() => {
                Ok(ReconcileAction::RequeueAfter(UNSCHEDULABLE_RETRY_INTERVAL))
            }
            Some(failure) => Err(Error::Protocol(failure.to_string())),
        }
    }

    fn finish_assumed(
        &self,
        case: &SchedulingTask<'_>,
        entry: Option<PreviousAssumption>,
        written: &Result<Object, Error>,
    ) {
        let Some(entry) = entry else { return };
        let key = &case.key.name;
        let informer = self.informer(case.key);
        let mut book = self.assume_cache.lock();
        match written {
            Ok(object) => book.finish_write(key, &entry, object, || informer.get_by_key(key)),
            Err(_) => book.restore(key, entry),
        }
    }

    /// Reports why a result could not be written, unless the binding is gone or is about to
    /// be scheduled again.
    async fn report_write_failure(
        &self,
        case: &SchedulingTask<'_>,
        outcome: &ScheduleResult,
        error: Error,
    ) -> Error {
        if error.is_conflict() || error.is_not_found() || error.is_namespace_terminating() {
            return error;
        }
        let condition = ScheduledCondition::from_write_error(outcome, &error);
        if !condition.is_reported(case.binding) {
            self.record_event(case.object, case.binding, Err(&condition.message));
        }
        let status = condition.to_status_patch(&rfc3339_seconds(self.clock.now()));
        let write = self.write_status(case.key.resource(), case.object, status);
        match write.await {
            Ok(()) => error,
            Err(unwritten) => unwritten,
        }
    }

    async fn write_result(
        &self,
        case: &SchedulingTask<'_>,
        targets: &[TargetCluster],
    ) -> Result<Object, Error> {
        let clusters = if targets.is_empty() {
            Value::Null
        } else {
            encode(&targets)?
        };
        let version = case.object.revision().to_string();
        let mut annotations =
            json!({well_known_keys::APPLIED_PLACEMENT: encode_placement(case.placement)?});
        let before = &case.binding.spec.clusters;
        if !before.is_empty() && !same_targets(before, targets) {
            annotations[well_known_keys::SCHEDULED_FROM] = version.as_str().into();
        }
        let patch = json!({
            "metadata": {"resourceVersion": version, "annotations": annotations},
            "spec": {"clusters": clusters},
        });
        let at = ResourcePath::of_object(case.key.resource(), case.object);
        self.api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
    }

    /// Records that this generation needs no decision, and the result if nobody has reported it: the
    /// detector wrote it, or this process ended before its status, or it fits again after a refusal.
    pub(super) async fn observe_generation(
        &self,
        case: &SchedulingTask<'_>,
    ) -> Result<ReconcileAction, Error> {
        let generation = case.object.meta().generation;
        let targets = &case.binding.spec.clusters;
        let is_refused = scheduled_condition(case.binding).is_some_and(|c| c.status == "False");
        let is_unreported = case.placed_by_detector || is_refused && !targets.is_empty();
        let mut status = Map::new();
        if is_unreported {
            let now = rfc3339_seconds(self.clock.now());
            status = ScheduledCondition::success().to_status_patch(&now);
            status.insert("lastScheduledTime".into(), now.into());
        }
        status.insert("schedulerObservedGeneration".into(), generation.into());
        self.write_status(case.key.resource(), case.object, status)
            .await?;
        if is_unreported {
            self.record_event(case.object, case.binding, Ok(targets));
        }
        Ok(ReconcileAction::Done)
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
            let mut all = old["conditions"].clone();
            set_json_condition(&mut all, condition[0].take());
            *condition = all;
        }
        status.retain(|field, value| old[field] != *value);
        let fields = (!status.is_empty()).then(|| status.into());
        let writer = StatusWriter::new(&*self.api, "scheduler");
        writer.patch(resource, object, fields).await.map(drop)
    }

    fn record_failed_terms(&self, case: &SchedulingTask<'_>, failed: &[FailedAffinityTerm]) {
        let kind = if case.key.cluster_scoped {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        };
        for FailedAffinityTerm { index, failure, .. } in failed {
            let name = &case.key.name;
            let text = format!(
                "failed to schedule {kind}({name}) with clusterAffiliates index({index}): {failure}"
            );
            self.record_event(case.object, case.binding, Err(&text));
        }
    }

    /// Records an event on the binding and on its template.
    pub(super) fn record_event(
        &self,
        object: &Object,
        binding: &ResourceBinding,
        result: Result<&[TargetCluster], &str>,
    ) {
        let template = &binding.spec.resource;
        let on_template = InvolvedObject {
            api_version: template.api_version.clone(),
            kind: template.kind.clone(),
            namespace: template.namespace.clone(),
            name: template.name.clone(),
            uid: template.uid.clone(),
            resource_version: String::new(),
        };
        for about in [InvolvedObject::from_object(object), on_template] {
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
                    let text = format!(
                        "{SCHEDULE_SUCCEEDED_MESSAGE} Result{colon} {{{}}}",
                        all.join(", ")
                    );
                    self.recorder.normal(&about, "ScheduleBindingSucceed", text);
                }
                Err(text) => self.recorder.warning(&about, "ScheduleBindingFailed", text),
            }
        }
    }
}

/// The value of the applied-placement annotation: the placement that a result belongs to.
pub fn encode_placement(placement: &Placement) -> Result<String, Error> {
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

fn scheduled_condition(binding: &ResourceBinding) -> Option<&Condition> {
    binding
        .status
        .conditions
        .iter()
        .find(|c| c.condition_type == "Scheduled")
}

pub(super) fn is_scheduled(binding: &ResourceBinding) -> bool {
    scheduled_condition(binding).is_some_and(|c| c.status == "True")
}
