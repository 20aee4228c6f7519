//! Reads a condition of an object, or sets one in a list and leaves the others alone
//! (`apimachinery/pkg/api/meta/conditions.go`).

use serde_json::Value;

/// A condition as JSON or as a typed view.
pub trait ConditionAccessor: PartialEq {
    fn condition_type(&self) -> &str;
    fn status(&self) -> &str;
    /// Takes over the `lastTransitionTime` of an older condition.
    fn keep_transition_time(&mut self, old: &Self);
}

impl ConditionAccessor for Value {
    fn condition_type(&self) -> &str {
        self["type"].as_str().unwrap_or("")
    }

    fn status(&self) -> &str {
        self["status"].as_str().unwrap_or("")
    }

    fn keep_transition_time(&mut self, old: &Self) {
        if let Some(time) = old.get("lastTransitionTime") {
            self["lastTransitionTime"] = time.clone();
        }
    }
}

/// Replaces or adds a condition, whose `lastTransitionTime` is the current time: it stays as
/// it was if the status stays. Returns whether the list changed.
pub fn set_status_condition<C: ConditionAccessor>(all: &mut Vec<C>, mut condition: C) -> bool {
    let same_type = |c: &&mut C| c.condition_type() == condition.condition_type();
    let Some(old) = all.iter_mut().find(same_type) else {
        all.push(condition);
        return true;
    };
    if old.status() == condition.status() {
        condition.keep_transition_time(old);
    }
    let changed = *old != condition;
    *old = condition;
    changed
}

/// [`set_status_condition`] for a list in JSON, which may be null.
pub fn set_json_condition(all: &mut Value, condition: Value) -> bool {
    if let Value::Array(all) = all {
        return set_status_condition(all, condition);
    }
    *all = Value::Array(vec![condition]);
    true
}

/// Whether an object has a condition of a type with the status True.
pub fn is_condition_true(object: &Value, condition_type: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == condition_type && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": time})
    }

    #[test]
    fn the_time_moves_with_the_status_only() {
        let mut all = Value::Null;
        assert!(set_json_condition(
            &mut all,
            condition("Ready", "True", "A", "t1")
        ));
        assert!(set_json_condition(
            &mut all,
            condition("Other", "False", "O", "t1")
        ));
        assert!(!set_json_condition(
            &mut all,
            condition("Ready", "True", "A", "t2")
        ));
        assert!(set_json_condition(
            &mut all,
            condition("Ready", "True", "B", "t2")
        ));
        assert_eq!(all[0], condition("Ready", "True", "B", "t1"));
        assert!(set_json_condition(
            &mut all,
            condition("Ready", "Unknown", "C", "t3")
        ));
        assert_eq!(all[0], condition("Ready", "Unknown", "C", "t3"));
        assert_eq!(all[1], condition("Other", "False", "O", "t1"));
        assert_eq!(all.as_array().unwrap().len(), 2);
    }
}
