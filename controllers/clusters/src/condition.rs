//! Sets a condition in a list of conditions and leaves the others alone. Pure
//! (`apimachinery/pkg/api/meta/conditions.go`).

use serde_json::{Value, json};

/// The status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionUpdate {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl ConditionUpdate {
    pub(crate) fn new(
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Sets the condition of type `kind` in a list that may be null. `lastTransitionTime`
/// changes only with the status.
pub(crate) fn set_status_condition(
    all: &mut Value,
    kind: &str,
    verdict: &ConditionUpdate,
    now: &str,
) {
    if !all.is_array() {
        *all = json!([]);
    }
    let Some(list) = all.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|c| c["type"] == kind) {
        Some(old) => {
            if old["status"] != verdict.status {
                old["status"] = verdict.status.into();
                old["lastTransitionTime"] = now.into();
            }
            old["reason"] = verdict.reason.into();
            old["message"] = verdict.message.as_str().into();
        }
        None => list.push(json!({
            "type": kind, "status": verdict.status, "lastTransitionTime": now,
            "reason": verdict.reason, "message": verdict.message,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status_only() {
        let mut all = Value::Null;
        set_status_condition(
            &mut all,
            "Ready",
            &ConditionUpdate::new("True", "A", "a"),
            "t1",
        );
        set_status_condition(
            &mut all,
            "Other",
            &ConditionUpdate::new("False", "O", "o"),
            "t1",
        );
        set_status_condition(
            &mut all,
            "Ready",
            &ConditionUpdate::new("True", "B", "b"),
            "t2",
        );
        assert_eq!(all[0]["lastTransitionTime"], "t1");
        assert_eq!(all[0]["reason"], "B");
        set_status_condition(
            &mut all,
            "Ready",
            &ConditionUpdate::new("Unknown", "C", "c"),
            "t3",
        );
        assert_eq!(all[0]["lastTransitionTime"], "t3");
        assert_eq!(
            all[1],
            json!({"type": "Other", "status": "False", "lastTransitionTime": "t1", "reason": "O", "message": "o"})
        );
        assert_eq!(all.as_array().unwrap().len(), 2);
    }
}
