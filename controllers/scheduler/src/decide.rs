//! Whether a binding is to be scheduled at all (`doScheduleBinding` of Karmada's
//! `pkg/scheduler/scheduler.go`). Pure.

use openapi::karmada::{Binding, BindingSpec, Placement, labels};

use crate::core::Snapshot;

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

/// Judges a binding that has a placement.
pub(crate) fn judge(binding: &Binding, placement: &Placement, snapshot: &Snapshot) -> Verdict {
    let fresh = rescheduled(binding);
    let spec = &binding.spec;
    let applied = binding
        .metadata
        .annotations
        .get(labels::APPLIED_PLACEMENT)
        .map_or("", String::as_str);
    let terminating = || {
        spec.clusters
            .iter()
            .any(|t| snapshot.get(&t.name).is_some_and(|m| m.is_terminating()))
    };
    let moved = placement_changed(placement, applied, &binding.status.observed_affinity);
    let scale = !moved && replicas_changed(spec, placement);
    let due = moved
        || scale
        || fresh
        // Without replicas there is nothing that could be torn from its place.
        || !spec.is_workload()
        || duplicated(placement)
        || binding.status.last_scheduled_time.is_none()
        // It is its policy's again, and nobody else takes the notice back.
        || binding.is_refused()
        || terminating();
    if due {
        Verdict::Schedule { fresh, scale }
    } else {
        Verdict::Note
    }
}

fn scheduling_type(placement: &Placement) -> &str {
    placement
        .replica_scheduling
        .as_ref()
        .map_or("Duplicated", |s| &s.replica_scheduling_type)
}

fn duplicated(placement: &Placement) -> bool {
    scheduling_type(placement) == "Duplicated"
}

fn rescheduled(binding: &Binding) -> bool {
    // RFC 3339 in UTC with seconds: text order is time order.
    match (
        &binding.spec.reschedule_triggered_at,
        &binding.status.last_scheduled_time,
    ) {
        (Some(triggered), Some(last)) => triggered > last,
        _ => false,
    }
}

fn replicas_changed(spec: &BindingSpec, placement: &Placement) -> bool {
    if placement.replica_scheduling.is_none() {
        return false;
    }
    match scheduling_type(placement) {
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
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(placement: Value, applied: Value, binding: Value, expected: Verdict) {
        let applied = if applied.is_null() {
            String::new()
        } else {
            applied.to_string()
        };
        let mut binding: Binding = serde_json::from_value(binding).unwrap();
        binding
            .metadata
            .annotations
            .insert(labels::APPLIED_PLACEMENT.into(), applied);
        let placement: Placement = serde_json::from_value(placement).unwrap();
        assert_eq!(
            judge(&binding, &placement, &Snapshot::default()),
            expected,
            "{binding:?}"
        );
    }

    fn divided() -> Value {
        json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}})
    }

    fn settled() -> Value {
        json!({"spec": {"replicas": 2, "clusters": [{"name": "a", "replicas": 2}]}, "status": {"lastScheduledTime": "2026-01-01T00:00:00Z"}})
    }

    #[test]
    fn what_is_settled_stays() {
        check(divided(), divided(), settled(), Verdict::Note);
    }

    #[test]
    fn changes_call_for_a_decision() {
        let due = Verdict::Schedule {
            fresh: false,
            scale: false,
        };
        let scaled = Verdict::Schedule {
            fresh: false,
            scale: true,
        };
        check(divided(), Value::Null, settled(), due);
        check(json!({}), json!({}), settled(), due);
        let mut more = settled();
        more["spec"]["replicas"] = 3.into();
        check(divided(), divided(), more, scaled);
        let mut elsewhere = divided();
        elsewhere["clusterAffinity"] = json!({"clusterNames": ["b"]});
        check(elsewhere, divided(), settled(), due);
        let mut plain = settled();
        plain["spec"]["replicas"] = 0.into();
        plain["spec"]["clusters"] = json!([]);
        check(divided(), divided(), plain, due);
    }

    #[test]
    fn an_explicit_trigger_forgets_the_past() {
        let mut binding = settled();
        binding["spec"]["rescheduleTriggeredAt"] = "2026-01-01T00:00:01Z".into();
        check(
            divided(),
            divided(),
            binding,
            Verdict::Schedule {
                fresh: true,
                scale: false,
            },
        );
    }

    #[test]
    fn only_the_observed_term_counts() {
        let terms = |second: &str| {
            let mut placement = divided();
            placement["clusterAffinities"] = json!([{"affinityName": "x", "clusterNames": ["a"]}, {"affinityName": "y", "clusterNames": [second]}]);
            placement
        };
        let mut binding = settled();
        binding["status"]["schedulerObservingAffinityName"] = "x".into();
        check(terms("b"), terms("c"), binding.clone(), Verdict::Note);
        binding["status"]["schedulerObservingAffinityName"] = "y".into();
        check(
            terms("b"),
            terms("c"),
            binding,
            Verdict::Schedule {
                fresh: false,
                scale: false,
            },
        );
    }
}
