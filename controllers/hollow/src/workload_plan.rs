//! The plan for a workload: pods to create and delete, and its status.

use serde_json::Value;

/// Pods that one plan creates at most, as kube-controller-manager (`BurstReplicas`,
/// `MaxPodCreateDeletePerSync`). The next plan follows when they are observed.
pub(crate) const MAX_POD_CREATES: usize = 500;

/// The plan for one workload; [`HollowCluster`](crate::HollowCluster) applies it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct WorkloadPlan {
    /// Pods to create, complete but for their node.
    pub(crate) create: Vec<Value>,
    /// Names of pods to delete.
    pub(crate) delete: Vec<String>,
    /// The new status; `None` if it does not change.
    pub(crate) status: Option<Value>,
    /// No further change of the status is expected soon; otherwise its write is delayed.
    pub(crate) stable: bool,
}

/// Sets counters in a status; zeros are removed unless listed in `always`. `None` if the
/// status does not change.
pub(crate) fn updated_status(
    old: &Value,
    always: &[&str],
    counters: &[(&str, i64)],
) -> Option<Value> {
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

/// The type of the condition of a workload whose pods cannot be created or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A condition of a status.
pub(crate) fn find_condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = status["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

/// Removes a condition from a status, and the list with the last one.
pub(crate) fn remove_condition(status: &mut Value, kind: &str) {
    let Some(all) = status["conditions"].as_array_mut() else {
        return;
    };
    all.retain(|condition| condition["type"] != kind);
    if all.is_empty()
        && let Some(fields) = status.as_object_mut()
    {
        fields.remove("conditions");
    }
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
    fn only_a_changed_status_is_returned() {
        assert_eq!(
            updated_status(&Value::Null, &["a"], &[("a", 0), ("b", 0)]),
            Some(json!({"a": 0}))
        );
        assert_eq!(
            updated_status(&json!({"a": 0, "x": []}), &["a"], &[("a", 0), ("b", 0)]),
            None
        );
        assert_eq!(
            updated_status(&json!({"b": 2}), &[], &[("b", 0)]),
            Some(json!({}))
        );
    }
}
