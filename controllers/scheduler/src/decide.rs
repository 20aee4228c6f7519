//! What is to be done about a binding: whether it is to be scheduled at all, and
//! where it goes by its affinity, or by the first of its terms that has a result
//! (`doScheduleBinding` of Karmada's `pkg/scheduler/scheduler.go`). Pure.

use openapi::karmada::placement::AffinityTerm;
use openapi::karmada::{Binding, BindingSpec, Placement, TargetCluster, labels};

use crate::core::{self, Decision, Ended, Failure, Request, Rules, Trace, World};

/// The scheduler of bindings that name none.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What is to be done about a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Schedule {
        /// Forget where replicas are.
        fresh: bool,
        /// Only the number of replicas is new.
        scale: bool,
    },
    /// Nothing to decide; only note that this generation was seen.
    Note,
}

/// Judges a binding that has a placement. `is_ending` tells of clusters that are being
/// deleted.
pub(crate) fn judge(
    binding: &Binding,
    placement: &Placement,
    rules: Rules,
    is_ending: impl Fn(&str) -> bool,
) -> Verdict {
    let fresh = rescheduled(binding);
    let spec = &binding.spec;
    let applied = binding
        .metadata
        .annotations
        .get(labels::APPLIED_PLACEMENT)
        .map_or("", String::as_str);
    let moved = placement_changed(placement, applied, &binding.status.observed_affinity);
    let scale = !moved && replicas_changed(spec, placement, rules);
    let due = moved
        || scale
        || fresh
        // Without replicas there is nothing that could be torn from its place.
        || !spec.is_workload()
        || core::is_duplicated(placement)
        || binding.status.last_scheduled_time.is_none()
        // It is its policy's again, and nobody else takes the notice back.
        || binding.is_refused()
        || spec.clusters.iter().any(|t| is_ending(&t.name));
    if due {
        Verdict::Schedule { fresh, scale }
    } else {
        Verdict::Note
    }
}

/// A term that had no result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedTerm {
    /// Its place among the terms.
    pub(crate) index: usize,
    pub(crate) affinity_name: String,
    pub(crate) failure: Failure,
}

/// What came out of a decision.
pub(crate) struct Outcome {
    pub(crate) targets: Vec<TargetCluster>,
    /// The affinity term that gave the result.
    pub(crate) term: Option<String>,
    /// Of the first attempt, when none had a result.
    pub(crate) failure: Option<Failure>,
    pub(crate) failed_terms: Vec<FailedTerm>,
    pub(crate) trace: Trace,
    /// Clusters that estimators have to be asked about first; there is nothing else then.
    pub(crate) lacking: Vec<String>,
}

/// Tries the affinity, or its terms from the one that holds the result now: it never
/// goes back by itself, unless it is to forget the past.
pub(crate) fn place(
    binding: &Binding,
    placement: &Placement,
    fresh: bool,
    world: &World<'_>,
    ended: &mut dyn FnMut(Ended),
) -> Outcome {
    let mut attempt = |term| {
        let spec = &binding.spec;
        let request = Request {
            spec,
            placement,
            term,
            fresh,
        };
        core::decide(&request, world, ended)
    };
    let terms = &placement.cluster_affinities;
    if terms.is_empty() {
        return Outcome::of(&attempt(None), None, Vec::new());
    }
    let observed = &binding.status.observed_affinity;
    let start = terms.iter().position(|t| t.affinity_name == *observed);
    let start = if fresh { 0 } else { start.unwrap_or(0) };
    let mut failed = Vec::new();
    let mut last = None;
    for (index, term) in terms.iter().enumerate().skip(start) {
        let decision = attempt(Some(term));
        let Some(failure) = decision.failure() else {
            // Also where it lacks answers.
            return Outcome::of(&decision, Some(term), failed);
        };
        failed.push(FailedTerm {
            index,
            affinity_name: term.affinity_name.clone(),
            failure: failure.clone(),
        });
        last = Some(decision.trace());
    }
    Outcome {
        targets: Vec::new(),
        term: None,
        failure: failed.first().map(|f| f.failure.clone()),
        failed_terms: failed,
        trace: last.unwrap_or_default(),
        lacking: Vec::new(),
    }
}

impl Outcome {
    fn of(decision: &Decision<'_>, term: Option<&AffinityTerm>, failed: Vec<FailedTerm>) -> Self {
        Self {
            targets: decision.targets(),
            term: term.map(|t| t.affinity_name.clone()),
            failure: decision.failure().cloned(),
            failed_terms: failed,
            trace: if decision.lacking().is_empty() {
                decision.trace()
            } else {
                Trace::default()
            },
            lacking: decision.lacking().to_vec(),
        }
    }

    /// Whether there is a result to be written: where nothing fits the old one is
    /// withdrawn, other failures leave it.
    pub(crate) fn is_result(&self) -> bool {
        matches!(self.failure, None | Some(Failure::NoFit(_)))
    }
}

/// Why a scheduler leaves a binding alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    #[error("it has another scheduler")]
    OtherScheduler,
    #[error("its scheduling is suspended")]
    Suspended,
}

/// Whether the scheduler of this name leaves a binding alone.
pub(crate) fn left_alone(binding: &Binding, scheduler: &str) -> Option<LeftAlone> {
    let spec = &binding.spec;
    let name = match spec.scheduler_name.as_str() {
        "" => DEFAULT_SCHEDULER,
        name => name,
    };
    if name != scheduler {
        return Some(LeftAlone::OtherScheduler);
    }
    let suspension = spec.suspension.as_ref();
    let suspended = suspension.is_some_and(|s| s.scheduling == Some(true));
    suspended.then_some(LeftAlone::Suspended)
}

/// Whether a trigger came after the last decision. Times have seconds: one of the same
/// second came after it when no decision has seen this generation. Karmada misses those.
pub(crate) fn rescheduled(binding: &Binding) -> bool {
    let status = &binding.status;
    // RFC 3339 in UTC with seconds: text order is time order.
    match (
        &binding.spec.reschedule_triggered_at,
        &status.last_scheduled_time,
    ) {
        (Some(triggered), Some(last)) if triggered == last => {
            status.scheduler_observed_generation < binding.metadata.generation
        }
        (Some(triggered), Some(last)) => triggered > last,
        _ => false,
    }
}

fn replicas_changed(spec: &BindingSpec, placement: &Placement, rules: Rules) -> bool {
    let Some(scheduling) = &placement.replica_scheduling else {
        return false;
    };
    // A set of components that lost its cluster has to find another one.
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
    let Ok(before) = serde_json::from_str::<Placement>(applied) else {
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
