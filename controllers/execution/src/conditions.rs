//! Builds the Dispatching and Applied conditions of a Work.

use controller_context::{APPLIED, AVAILABLE, WorkHealth, set_derived_conditions};
use jiff::Timestamp;
use karmada_api::binding::Condition;
use karmada_api::work::DRIFT_REPAIRED;
use machinery::conditions::set_status_condition;
use machinery::time::rfc3339_seconds;

pub(crate) const DISPATCHING: &str = "Dispatching";
/// Whether repairs of objects are undone in the member. Karmada has no such condition.
pub(crate) const FIELD_CONFLICT: &str = "FieldConflict";
/// Whether the member has the objects of a Work as it says. Karmada has no such condition.
pub(crate) const PROPAGATED: &str = "Propagated";
pub(crate) const SUSPENDED_MESSAGE: &str = "Work dispatching is in a suspended state.";
pub(crate) const DISPATCHING_MESSAGE: &str = "Work is being dispatched to member clusters.";
const APPLIED_MESSAGE: &str = "Manifest has been successfully applied";

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkCondition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) fn dispatching_condition(suspended: bool) -> WorkCondition {
    let (status, reason, message) = if suspended {
        ("False", "SuspendDispatching", SUSPENDED_MESSAGE)
    } else {
        ("True", "Dispatching", DISPATCHING_MESSAGE)
    };
    WorkCondition {
        kind: DISPATCHING,
        status,
        reason,
        message: message.into(),
    }
}

/// `Err`: why the manifests are not applied.
pub(crate) fn applied_condition(outcome: Result<(), String>) -> WorkCondition {
    let (status, reason, message) = match outcome {
        Ok(()) => ("True", "AppliedSuccessful", APPLIED_MESSAGE.to_owned()),
        Err(message) => ("False", "AppliedFailed", message),
    };
    WorkCondition {
        kind: APPLIED,
        status,
        reason,
        message,
    }
}

/// `conflicts`: the contested fields and who changes them.
pub(crate) fn field_conflict_condition(conflicts: &[String]) -> WorkCondition {
    let (status, reason, message) = if conflicts.is_empty() {
        (
            "False",
            "NoConflict",
            "No repair was undone lately.".to_owned(),
        )
    } else {
        ("True", "RepairsUndone", conflicts.join("; "))
    };
    WorkCondition {
        kind: FIELD_CONFLICT,
        status,
        reason,
        message,
    }
}

impl WorkCondition {
    /// The condition as it is written at `now`. `generation` is the observed generation of
    /// Applied and Propagated.
    pub(crate) fn to_condition(&self, generation: i64, now: &str) -> Condition {
        Condition {
            condition_type: self.kind.into(),
            status: self.status.into(),
            observed_generation: match self.kind {
                APPLIED | PROPAGATED => generation,
                _ => 0,
            },
            last_transition_time: now.into(),
            reason: self.reason.into(),
            message: self.message.clone(),
        }
    }
}

/// Whether a condition differs from the existing one.
pub(crate) fn is_changed(old: &[Condition], condition: &WorkCondition) -> bool {
    !old.iter().any(|c| {
        c.condition_type == condition.kind
            && c.status == condition.status
            && c.message == condition.message
    })
}

/// Sets conditions in the list of a Work, and those that follow from them and from the health of
/// its objects; returns whether anything has changed. A Work without the conditions that Karmada
/// lacks gets them with its next change, so that an upgrade does not write every Work.
pub(crate) fn set_conditions(
    all: &mut Vec<Condition>,
    conditions: &[WorkCondition],
    health: &WorkHealth<'_>,
    generation: i64,
    now: Timestamp,
) -> bool {
    let has = |all: &[Condition], kind: &str| all.iter().any(|c| c.condition_type == kind);
    let written_at = rfc3339_seconds(now);
    let mut changed = false;
    let (own, karmadas): (Vec<_>, Vec<_>) = conditions.iter().partition(|c| c.kind == PROPAGATED);
    for condition in karmadas {
        // Each repair counts, also one that is like the last.
        if condition.kind == DRIFT_REPAIRED {
            all.retain(|other| other.condition_type != DRIFT_REPAIRED);
        }
        changed |= set_status_condition(all, condition.to_condition(generation, &written_at));
    }
    for condition in own {
        if changed || condition.status != "True" || has(all, PROPAGATED) {
            changed |= set_status_condition(all, condition.to_condition(generation, &written_at));
        }
    }
    if changed || has(all, AVAILABLE) {
        changed |= set_derived_conditions(all, health, now);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list after the conditions were set; `None` if it has not changed.
    fn merge_conditions(
        old: &[Condition],
        conditions: &[WorkCondition],
        generation: i64,
        now: &str,
    ) -> Option<Vec<Condition>> {
        let mut all = old.to_vec();
        for condition in conditions {
            set_status_condition(&mut all, condition.to_condition(generation, now));
        }
        (all != old).then_some(all)
    }

    // proves: EXE-conditions, EXE-generation, EXE-dispatching, EXE-applied
    #[test]
    fn conditions_are_written_when_they_differ() {
        let conditions = [dispatching_condition(false), applied_condition(Ok(()))];
        let old = merge_conditions(&[], &conditions, 1, "t1").unwrap();
        assert_eq!(
            (old[1].observed_generation, old[0].observed_generation),
            (1, 0)
        );
        let words = |c: &Condition| {
            [&c.condition_type, &c.status, &c.reason, &c.message].map(String::clone)
        };
        assert_eq!(
            words(&old[0]),
            ["Dispatching", "True", "Dispatching", DISPATCHING_MESSAGE]
        );
        assert_eq!(
            words(&old[1]),
            ["Applied", "True", "AppliedSuccessful", APPLIED_MESSAGE]
        );
        assert_eq!(merge_conditions(&old, &conditions, 1, "t2"), None);
        let suspended = merge_conditions(&old, &[dispatching_condition(true)], 1, "t2").unwrap();
        assert_eq!(
            words(&suspended[0]),
            [
                "Dispatching",
                "False",
                "SuspendDispatching",
                SUSPENDED_MESSAGE
            ]
        );
        assert_eq!(
            (&suspended[0].last_transition_time, &suspended[1]),
            (&"t2".to_owned(), &old[1])
        );
        let newer = merge_conditions(&old, &conditions, 2, "t2").unwrap();
        assert_eq!(
            newer[1].last_transition_time, "t1",
            "the status is the same"
        );
        let failed =
            merge_conditions(&old, &[applied_condition(Err("why".into()))], 1, "t2").unwrap();
        assert_eq!(failed[1].last_transition_time, "t2");
        assert_eq!(failed[1].message, "why");
        assert_eq!(failed[1].reason, "AppliedFailed");
        assert!(
            is_changed(&old, &dispatching_condition(true))
                && !is_changed(&old, &dispatching_condition(false))
        );
    }

    // proves: EXE-propagated, EXE-upgrade-quiet
    #[test]
    fn a_work_gets_further_conditions_with_its_next_change() {
        let now = Timestamp::UNIX_EPOCH;
        let health = || WorkHealth {
            manifests: 1,
            reported: vec!["Healthy"],
        };
        let propagated = WorkCondition {
            kind: PROPAGATED,
            status: "True",
            reason: "Propagated",
            message: String::new(),
        };
        let conditions = [
            dispatching_condition(false),
            applied_condition(Ok(())),
            propagated,
        ];
        let mut old = merge_conditions(&[], &conditions[..2], 1, "t1").unwrap();
        let set = |all: &mut Vec<Condition>, generation: i64| {
            set_conditions(all, &conditions, &health(), generation, now)
        };
        assert!(!set(&mut old, 1), "nothing that Karmada writes has changed");
        assert!(set(&mut old, 2));
        let kinds: Vec<_> = old.iter().map(|c| c.condition_type.as_str()).collect();
        let expected = [
            DISPATCHING,
            APPLIED,
            PROPAGATED,
            AVAILABLE,
            "Progressing",
            "Degraded",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(old[2].observed_generation, 2);
        assert!(!set(&mut old, 2));
    }
}
