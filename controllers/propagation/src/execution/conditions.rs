//! Builds the Dispatching and Applied conditions of a Work, and merges them into its status.

use openapi::karmada::binding::Condition;
use serde_json::{Value, json};

pub(super) const DISPATCHING: &str = "Dispatching";
pub(super) const APPLIED: &str = "Applied";
pub(super) const SUSPENDED_TEXT: &str = "Work dispatching is in a suspended state.";
pub(super) const DISPATCHING_TEXT: &str = "Work is being dispatched to member clusters.";
const APPLIED_TEXT: &str = "Manifest has been successfully applied";

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

pub(super) fn dispatching(suspended: bool) -> Said {
    let (status, reason, message) = if suspended {
        ("False", "SuspendDispatching", SUSPENDED_TEXT)
    } else {
        ("True", "Dispatching", DISPATCHING_TEXT)
    };
    Said {
        kind: DISPATCHING,
        status,
        reason,
        message: message.into(),
    }
}

/// `Err`: why the manifests are not applied.
pub(super) fn applied(outcome: Result<(), String>) -> Said {
    let (status, reason, message) = match outcome {
        Ok(()) => ("True", "AppliedSuccessful", APPLIED_TEXT.to_owned()),
        Err(message) => ("False", "AppliedFailed", message),
    };
    Said {
        kind: APPLIED,
        status,
        reason,
        message,
    }
}

/// Merges conditions into the existing ones; `None` if nothing changes. A condition that keeps its
/// status keeps its transition time. `generation` is the observed generation of Applied.
pub(super) fn merge(old: &[Condition], said: &[Said], generation: i64, now: &str) -> Option<Value> {
    let mut all = old.to_vec();
    for new in said {
        let mut condition = Condition {
            kind: new.kind.into(),
            status: new.status.into(),
            observed_generation: if new.kind == APPLIED { generation } else { 0 },
            last_transition_time: now.into(),
            reason: new.reason.into(),
            message: new.message.clone(),
        };
        match all.iter_mut().find(|c| c.kind == new.kind) {
            Some(old) => {
                if old.status == condition.status {
                    condition.last_transition_time = old.last_transition_time.clone();
                }
                *old = condition;
            }
            None => all.push(condition),
        }
    }
    (all != old).then(|| json!(all))
}

/// Whether a condition differs from the existing one.
pub(super) fn is_news(old: &[Condition], said: &Said) -> bool {
    !old.iter()
        .any(|c| c.kind == said.kind && c.status == said.status && c.message == said.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: EXE-conditions, EXE-generation, EXE-dispatching, EXE-applied
    #[test]
    fn conditions_are_written_when_they_differ() {
        let said = [dispatching(false), applied(Ok(()))];
        let first = merge(&[], &said, 1, "t1").unwrap();
        let old: Vec<Condition> = serde_json::from_value(first).unwrap();
        assert_eq!(
            (old[1].observed_generation, old[0].observed_generation),
            (1, 0)
        );
        let words = |c: &Condition| [&c.kind, &c.status, &c.reason, &c.message].map(String::clone);
        assert_eq!(
            words(&old[0]),
            ["Dispatching", "True", "Dispatching", DISPATCHING_TEXT]
        );
        assert_eq!(
            words(&old[1]),
            ["Applied", "True", "AppliedSuccessful", APPLIED_TEXT]
        );
        assert_eq!(merge(&old, &said, 1, "t2"), None);
        let held = merge(&old, &[dispatching(true)], 1, "t2").unwrap();
        let held: Vec<Condition> = serde_json::from_value(held).unwrap();
        assert_eq!(
            words(&held[0]),
            ["Dispatching", "False", "SuspendDispatching", SUSPENDED_TEXT]
        );
        assert_eq!(
            (&held[0].last_transition_time, &held[1]),
            (&"t2".to_owned(), &old[1])
        );
        let newer = merge(&old, &said, 2, "t2").unwrap();
        assert_eq!(
            newer[1]["lastTransitionTime"], "t1",
            "the status is the same"
        );
        let failed = merge(&old, &[applied(Err("why".into()))], 1, "t2").unwrap();
        assert_eq!(failed[1]["lastTransitionTime"], "t2");
        assert_eq!(failed[1]["message"], "why");
        assert_eq!(failed[1]["reason"], "AppliedFailed");
        assert!(is_news(&old, &dispatching(true)) && !is_news(&old, &dispatching(false)));
    }
}
