//! A condition of a Cluster that a controller observed.

use machinery::conditions::set_json_condition;
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

    /// Sets this condition as type `kind` in a list that may be null. `lastTransitionTime`
    /// changes only with the status.
    pub(crate) fn set_in(&self, all: &mut Value, kind: &str, now: &str) {
        let condition = json!({
            "type": kind, "status": self.status, "lastTransitionTime": now,
            "reason": self.reason, "message": self.message,
        });
        set_json_condition(all, condition);
    }
}
