//! Decides whether a binding needs scheduling, and schedules it by its affinity or by the
//! first affinity term with a result (`doScheduleBinding` of Karmada's
//! `pkg/scheduler/scheduler.go`). Pure.

use karmada_api::placement::ClusterAffinityTerm;
use karmada_api::replica_preference::RecordedReplicaPreference;
use karmada_api::{
    Placement, ResourceBinding, ResourceBindingSpec, TargetCluster, well_known_keys,
};

use crate::core::{
    self, DecisionTrace, ScheduleRequest, SchedulingContext, SchedulingDecision, SchedulingFailure,
    SchedulingSettings, StepOrPluginCompletion,
};

/// The scheduler of bindings that name no scheduler.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The scheduler's task for a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedulingAction {
    Schedule {
        /// Ignore where replicas are now.
        fresh: bool,
        /// Only the number of replicas has changed.
        scale: bool,
    },
    /// Nothing to decide; only record the observed generation.
    ObserveGeneration,
}

/// Returns what to do about a binding with a placement. `is_ending` tells whether a
/// cluster is being deleted.
pub(crate) fn scheduling_action(
    binding: &ResourceBinding,
    placement: &Placement,
    rules: SchedulingSettings,
    is_ending: impl Fn(&str) -> bool,
) -> SchedulingAction {
    let fresh = binding.is_reschedule_triggered();
    let spec = &binding.spec;
    let applied = binding
        .metadata
        .annotations
        .get(well_known_keys::APPLIED_PLACEMENT)
        .map_or("", String::as_str);
    let moved = placement_changed(placement, applied, &binding.status.observed_affinity);
    let scale = !moved && replicas_changed(spec, placement, rules);
    let due = moved
        || scale
        || fresh
        // Without replicas a new decision cannot move any.
        || !spec.is_workload()
        || core::is_duplicated(placement)
        // The preference or what a cluster can run may have changed.
        || binding.metadata.annotations.contains_key(well_known_keys::REPLICA_PREFERENCE)
        || binding.status.last_scheduled_time.is_none()
        // Its policy applies again, and only the scheduler removes the refusal.
        || binding.runs_on_host()
        || spec.clusters.iter().any(|t| is_ending(&t.name));
    if due {
        SchedulingAction::Schedule { fresh, scale }
    } else {
        SchedulingAction::ObserveGeneration
    }
}

/// An affinity term without a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedAffinityTerm {
    /// Index of the term in `clusterAffinities`.
    pub(crate) index: usize,
    pub(crate) affinity_name: String,
    pub(crate) failure: SchedulingFailure,
}

/// The result of scheduling a binding.
pub(crate) struct ScheduleResult {
    pub(crate) targets: Vec<TargetCluster>,
    /// The affinity term that the result belongs to.
    pub(crate) term: Option<String>,
    /// The failure of the first attempt, if no attempt had a result.
    pub(crate) failure: Option<SchedulingFailure>,
    pub(crate) failed_terms: Vec<FailedAffinityTerm>,
    pub(crate) trace: DecisionTrace,
    /// Clusters that estimators must be asked about first; the other fields are then empty.
    pub(crate) unestimated_clusters: Vec<String>,
}

/// Tries the affinity, or its terms from the observed one on: without `fresh` the
/// scheduler never returns to an earlier term.
pub(crate) fn schedule_binding(
    binding: &ResourceBinding,
    placement: &Placement,
    fresh: bool,
    context: &SchedulingContext<'_>,
    ended: &mut dyn FnMut(StepOrPluginCompletion),
) -> ScheduleResult {
    let preference = RecordedReplicaPreference::from_binding(binding);
    let context = &SchedulingContext {
        replica_preference: preference.as_ref(),
        ..*context
    };
    let mut attempt = |term| {
        let spec = &binding.spec;
        let request = ScheduleRequest {
            spec,
            placement,
            term,
            fresh,
        };
        core::make_decision(&request, context, ended)
    };
    let terms = &placement.cluster_affinities;
    if terms.is_empty() {
        return ScheduleResult::from_decision(&attempt(None), None, Vec::new());
    }
    let observed = &binding.status.observed_affinity;
    let start = terms.iter().position(|t| t.affinity_name == *observed);
    let start = if fresh { 0 } else { start.unwrap_or(0) };
    let mut failed = Vec::new();
    let mut last = None;
    for (index, term) in terms.iter().enumerate().skip(start) {
        let decision = attempt(Some(term));
        let Some(failure) = decision.failure() else {
            // This includes decisions that still miss estimates.
            return ScheduleResult::from_decision(&decision, Some(term), failed);
        };
        failed.push(FailedAffinityTerm {
            index,
            affinity_name: term.affinity_name.clone(),
            failure: failure.clone(),
        });
        last = Some(decision.trace());
    }
    ScheduleResult {
        targets: Vec::new(),
        term: None,
        failure: failed.first().map(|f| f.failure.clone()),
        failed_terms: failed,
        trace: last.unwrap_or_default(),
        unestimated_clusters: Vec::new(),
    }
}

impl ScheduleResult {
    fn from_decision(
        decision: &SchedulingDecision<'_>,
        term: Option<&ClusterAffinityTerm>,
        failed: Vec<FailedAffinityTerm>,
    ) -> Self {
        Self {
            targets: decision.targets(),
            term: term.map(|t| t.affinity_name.clone()),
            failure: decision.failure().cloned(),
            failed_terms: failed,
            trace: if decision.unestimated_clusters().is_empty() {
                decision.trace()
            } else {
                DecisionTrace::default()
            },
            unestimated_clusters: decision.unestimated_clusters().to_vec(),
        }
    }

    /// Whether the result is to be written: a failure because no cluster fits clears the
    /// old result, other failures keep it.
    pub(crate) fn is_result(&self) -> bool {
        matches!(self.failure, None | Some(SchedulingFailure::NoFit(_)))
    }
}

/// Why a scheduler ignores a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchedulingSkipReason {
    #[error("it has another scheduler")]
    OtherScheduler,
    #[error("its scheduling is suspended")]
    Suspended,
}

/// Why the scheduler of this name ignores a binding, if it does.
pub(crate) fn skip_reason(
    binding: &ResourceBinding,
    scheduler: &str,
) -> Option<SchedulingSkipReason> {
    let spec = &binding.spec;
    let name = match spec.scheduler_name.as_str() {
        "" => DEFAULT_SCHEDULER,
        name => name,
    };
    if name != scheduler {
        return Some(SchedulingSkipReason::OtherScheduler);
    }
    let suspension = spec.suspension.as_ref();
    let suspended = suspension.is_some_and(|s| s.scheduling == Some(true));
    suspended.then_some(SchedulingSkipReason::Suspended)
}

fn replicas_changed(
    spec: &ResourceBindingSpec,
    placement: &Placement,
    rules: SchedulingSettings,
) -> bool {
    let Some(scheduling) = &placement.replica_scheduling else {
        return false;
    };
    // A set of components without a cluster needs a new one.
    if rules.component_sets && !spec.components.is_empty() && spec.clusters.is_empty() {
        return true;
    }
    match scheduling.replica_scheduling_type.as_str() {
        "Duplicated" => spec.clusters.iter().any(|t| t.replicas != spec.replicas),
        "Divided" => spec.clusters.iter().map(|t| t.replicas).sum::<i64>() != spec.replicas,
        _ => false,
    }
}

fn placement_changed(now: &Placement, applied: &str, observed_affinity: &str) -> bool {
    if applied.is_empty() {
        return true;
    }
    let Ok(before) = machinery::json::from_str::<Placement>(applied) else {
        return false;
    };
    if before == *now {
        return false;
    }
    if before.cluster_affinity != now.cluster_affinity
        || before.cluster_tolerations != now.cluster_tolerations
        || before.spread_constraints != now.spread_constraints
        || before.replica_scheduling != now.replica_scheduling
    {
        return true;
    }
    let term = |placement: &Placement| {
        placement
            .cluster_affinities
            .iter()
            .find(|t| t.affinity_name == observed_affinity)
            .cloned()
    };
    match (term(&before), term(now)) {
        (Some(before), Some(now)) => before != now,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
