//! Rules for parts of the expected state that depend only on a template or on a scenario's
//! expectation.

use serde_json::{Map, Value, json};

use crate::scenarios::observed_state::JOB_CONTROLLER_LABELS;
use crate::scenarios::scenario::{ExpectedClusters, ExpectedCondition};

pub(crate) fn target_clusters(clusters: &ExpectedClusters) -> Value {
    let target = |(name, replicas): (&String, &Option<i64>)| match replicas {
        None | Some(0) => json!({ "name": name }),
        Some(replicas) => json!({"name": name, "replicas": replicas}),
    };
    clusters.0.iter().map(target).collect()
}

pub(crate) fn condition_or_usual(
    kind: &str,
    expected: Option<&ExpectedCondition>,
    usual: Option<Value>,
) -> Option<Value> {
    match expected {
        None => usual,
        Some(ExpectedCondition::Absent(_)) => None,
        Some(ExpectedCondition::Condition {
            status,
            reason,
            message,
        }) => Some(json!({"type": kind, "status": status, "reason": reason, "message": message})),
    }
}

pub(crate) fn fully_applied_condition(all: bool) -> Value {
    let (status, reason, message) = if all {
        (
            "True",
            "FullyAppliedSuccess",
            "All works have been successfully applied",
        )
    } else {
        (
            "False",
            "FullyAppliedFailed",
            "Failed to apply all works, see status.aggregatedStatus for details",
        )
    };
    json!({"type": "FullyApplied", "status": status, "reason": reason, "message": message})
}

/// The replica requirements of a template with one container.
pub(crate) fn replica_requirements(template: &Value) -> Value {
    let requests = template.pointer("/spec/template/spec/containers/0/resources/requests");
    requests.map_or(Value::Null, |r| json!({ "resourceRequest": r }))
}

/// The template without the fields that Karmada prunes (`.../native/prune`).
pub(crate) fn pruned(template: &Value) -> Value {
    let mut copy = template.clone();
    if let Value::Object(fields) = &mut copy {
        fields.remove("status");
    }
    if let Some(metadata) = copy["metadata"].as_object_mut() {
        let kept = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|key, _| kept.contains(&key.as_str()));
    }
    if copy["kind"] == "Service" && copy["spec"]["clusterIP"] != "None" {
        let spec = copy["spec"].as_object_mut().unwrap();
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if copy["kind"] == "Job" {
        let spec = copy["spec"].as_object_mut().unwrap();
        spec.remove("ttlSecondsAfterFinished");
        if copy["spec"]["manualSelector"] != true {
            for at in [
                "/spec/selector/matchLabels",
                "/spec/template/metadata/labels",
            ] {
                if let Some(Value::Object(labels)) = copy.pointer_mut(at) {
                    labels.retain(|key, _| !JOB_CONTROLLER_LABELS.contains(&key.as_str()));
                }
            }
        }
    }
    copy
}

pub(crate) fn object_field<'a>(parent: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !parent[key].is_object() {
        parent[key] = json!({});
    }
    parent[key].as_object_mut().unwrap()
}

/// The sorted keys, joined by commas.
pub(crate) fn joined_keys(map: &Map<String, Value>) -> String {
    let keys: Vec<&str> = map.keys().map(String::as_str).collect();
    keys.join(",")
}

/// RFC 7386.
pub(crate) fn merge_patch(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let fields = into.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge_patch(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
