//! What a controller has decided: children to make and remove, and the status
//! that is true now. The shell in [`crate::run`] carries it out.

use serde_json::Value;

/// The outcome of one decision about one workload.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Pods to create, complete but for their node.
    pub(crate) create: Vec<Value>,
    /// Names of pods to delete.
    pub(crate) delete: Vec<String>,
    /// The status as it should be; nothing when it does not change.
    pub(crate) status: Option<Value>,
    /// Nothing more is on its way: a status that is about to change again is not
    /// worth a write.
    pub(crate) settled: bool,
}

/// Puts counters into a status: zeros vanish unless the kind always writes them.
/// Gives nothing when the status is as it was.
pub(crate) fn status_with(old: &Value, always: &[&str], counters: &[(&str, i64)]) -> Option<Value> {
    let mut status = old.as_object().cloned().unwrap_or_default();
    for (field, value) in counters {
        if *value == 0 && !always.contains(field) {
            status.remove(*field);
        } else {
            status.insert((*field).into(), (*value).into());
        }
    }
    let status = Value::Object(status);
    (status != *old).then_some(status)
}

/// `metadata.generation` of a parent.
pub(crate) fn generation(parent: &Value) -> i64 {
    parent["metadata"]["generation"].as_i64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_change_is_a_status() {
        assert_eq!(
            status_with(&Value::Null, &["a"], &[("a", 0), ("b", 0)]),
            Some(json!({"a": 0}))
        );
        assert_eq!(
            status_with(&json!({"a": 0, "x": []}), &["a"], &[("a", 0), ("b", 0)]),
            None
        );
        assert_eq!(
            status_with(&json!({"b": 2}), &[], &[("b", 0)]),
            Some(json!({}))
        );
    }
}
