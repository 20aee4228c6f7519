//! Builds the Dispatching and Applied conditions of a Work.

use karmada_api::binding::Condition;

pub(crate) const DISPATCHING: &str = "Dispatching";
pub(crate) const APPLIED: &str = "Applied";
/// Whether repairs of objects are undone in the member. Karmada has no such condition.
pub(crate) const FIELD_CONFLICT: &str = "FieldConflict";
/// Whether objects are left alone because a label in the member says so. Karmada has no such
/// condition.
pub(crate) const NOT_MANAGED: &str = "NotManaged";
pub(crate) const SUSPENDED_MESSAGE: &str = "Work dispatching is in a suspended state.";
pub(crate) const DISPATCHING_MESSAGE: &str = "Work is being dispatched to member clusters.";
const APPLIED_MESSAGE: &str = "Manifest has been successfully applied";

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkCondition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
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

/// `objects`: those that are left alone, with the label that says so.
pub(crate) fn not_managed_condition(objects: &[String]) -> WorkCondition {
    let (status, reason, message) = if objects.is_empty() {
        ("False", "Managed", "All objects are managed.".to_owned())
    } else {
        ("True", "LabeledInMember", objects.join("; "))
    };
    WorkCondition {
        kind: NOT_MANAGED,
        status,
        reason,
        message,
    }
}

impl WorkCondition {
    /// The condition as it is written at `now`. `generation` is the observed generation of
    /// Applied.
    pub(crate) fn to_condition(&self, generation: i64, now: &str) -> Condition {
        Condition {
            condition_type: self.kind.into(),
            status: self.status.into(),
            observed_generation: if self.kind == APPLIED { generation } else { 0 },
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

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::conditions::set_status_condition;

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
        let labeled = not_managed_condition(&["x".into()]);
        assert!(is_changed(&old, &labeled) && is_changed(&old, &not_managed_condition(&[])));
        assert!(
            is_changed(&old, &dispatching_condition(true))
                && !is_changed(&old, &dispatching_condition(false))
        );
    }
}
