//! Tests of when a binding is scheduled again and when it stays as it is.
//!
//! A line of `due.txt` is: placement now | placement of the last result | binding |
//! expected action, in the vocabulary of the decision tables. A binding has further words:
//! `last` (it was scheduled), `asked` or `asked-before` (a reschedule was triggered after
//! or before that), `ending:a` (the cluster is being deleted), `refused` (the host keeps
//! the template).

use serde_json::to_string;

use super::*;
use crate::core::tests::decision_table::{parse_binding, placement};

const SCHEDULING_ACTION_CASES: &str = include_str!("due.txt");

fn parse_and_decide(line: &str) -> (String, &str) {
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let [now, applied, words, expected] = parts[..] else {
        panic!("{line}");
    };
    let (mut plain, mut ending) = (Vec::new(), "");
    let mut status = karmada_api::ResourceBindingStatus::default();
    let mut trigger = None;
    let mut generation = 0;
    for word in words.split_whitespace() {
        match word {
            "last" => status.last_scheduled_time = Some("2026-01-01T00:00:05Z".into()),
            "asked" => trigger = Some("2026-01-01T00:00:06Z".to_owned()),
            "asked-then" => trigger = Some("2026-01-01T00:00:05Z".to_owned()),
            "unseen" => generation = 1,
            "asked-before" => trigger = Some("2026-01-01T00:00:04Z".to_owned()),
            "refused" => status.conditions.push(karmada_api::binding::Condition {
                condition_type: "Scheduled".into(),
                reason: karmada_api::binding::HOST_RUNS_WORKLOADS.into(),
                ..Default::default()
            }),
            _ => match word.strip_prefix("ending:") {
                Some(cluster) => ending = cluster,
                None => plain.push(word),
            },
        }
    }
    let mut case = parse_binding(&plain.join(" "));
    let binding = &mut case.binding;
    status
        .observed_affinity
        .clone_from(&binding.status.observed_affinity);
    binding.status = status;
    binding.spec.reschedule_triggered_at = trigger;
    binding.metadata.generation = generation;
    let applied = match applied {
        "none" => None,
        "broken" => Some("{".to_owned()),
        words => Some(to_string(&placement(words)).unwrap()),
    };
    if let Some(applied) = applied {
        let annotations = &mut binding.metadata.annotations;
        annotations.insert(well_known_keys::APPLIED_PLACEMENT.into(), applied);
    }
    let action = match scheduling_action(binding, &placement(now), case.settings, |c| c == ending) {
        SchedulingAction::ObserveGeneration => "note",
        SchedulingAction::Schedule {
            fresh: true,
            scale: true,
        } => "fresh scale",
        SchedulingAction::Schedule { fresh: true, .. } => "fresh",
        SchedulingAction::Schedule { scale: true, .. } => "scale",
        SchedulingAction::Schedule { .. } => "due",
    };
    (action.to_owned(), expected)
}

#[test]
fn a_binding_is_scheduled_when_due() {
    let rows = SCHEDULING_ACTION_CASES
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    for row in rows {
        let (action, expected) = parse_and_decide(row);
        assert_eq!(action, expected, "{row}");
    }
}

// proves: RSP-trigger
#[test]
fn a_binding_with_a_replica_preference_is_always_scheduled() {
    let mut binding = parse_binding("n:2").binding;
    let placement = placement("even");
    let annotations = &mut binding.metadata.annotations;
    let applied = to_string(&placement).unwrap();
    annotations.insert(well_known_keys::APPLIED_PLACEMENT.into(), applied);
    binding.status.last_scheduled_time = Some("2026-01-01T00:00:05Z".into());
    binding.spec.clusters = vec![TargetCluster {
        name: "a".into(),
        replicas: 2,
        components: Vec::new(),
    }];
    let action = |binding: &_| {
        scheduling_action(binding, &placement, SchedulingSettings::default(), |_| {
            false
        })
    };
    assert_eq!(action(&binding), SchedulingAction::ObserveGeneration);
    let key = well_known_keys::REPLICA_PREFERENCE;
    binding.metadata.annotations.insert(key.into(), "{}".into());
    assert_ne!(action(&binding), SchedulingAction::ObserveGeneration);
}
