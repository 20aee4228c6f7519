//! Prints Clusters, for which Karmada has a printer instead of declared columns (Karmada
//! `pkg/printers/internalversion/printers.go`).

use jiff::Timestamp;
use openapi::KindInfo;
use serde_json::Value;

use super::{TableColumnDefinition, age_cell, name_cell};

fn is_cluster(kind: &KindInfo) -> bool {
    kind.gvk.group == "cluster.karmada.io" && kind.gvk.kind == "Cluster"
}

pub(super) fn columns(kind: &KindInfo) -> Option<Vec<TableColumnDefinition>> {
    is_cluster(kind).then(|| {
        vec![
            TableColumnDefinition::new("Name", "string").with_description("Name of the cluster."),
            TableColumnDefinition::new("Version", "string")
                .with_description("Kubernetes version of the cluster."),
            TableColumnDefinition::new("Mode", "string")
                .with_description("How the cluster is synchronized: Push or Pull."),
            TableColumnDefinition::new("Ready", "string")
                .with_description("Whether the cluster is ready, and whether it is cordoned."),
            TableColumnDefinition::new("Age", "string")
                .with_description("Time since the cluster was registered."),
            TableColumnDefinition::new("Zones", "string")
                .with_description("Zones of the cluster.")
                .wide_only(),
            TableColumnDefinition::new("Region", "string")
                .with_description("Region of the cluster.")
                .wide_only(),
            TableColumnDefinition::new("Provider", "string")
                .with_description("Provider of the cluster.")
                .wide_only(),
            TableColumnDefinition::new("API-Endpoint", "string")
                .with_description("Address of the cluster's API server.")
                .wide_only(),
            TableColumnDefinition::new("Proxy-URL", "string")
                .with_description("Proxy through which the cluster is reached.")
                .wide_only(),
        ]
    })
}

pub(super) fn cells(kind: &KindInfo, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    if !is_cluster(kind) {
        return None;
    }
    let text = |path: &str| {
        let text = object.pointer(path).and_then(Value::as_str);
        Value::from(text.unwrap_or_default())
    };
    let or_none = |value: Value| match value.as_str() {
        Some("") => Value::from("<none>"),
        _ => value,
    };
    Some(vec![
        name_cell(object),
        text("/status/kubernetesVersion"),
        text("/spec/syncMode"),
        readiness(object),
        age_cell(object, now),
        or_none(zones(object)),
        or_none(text("/spec/region")),
        or_none(text("/spec/provider")),
        text("/spec/apiEndpoint"),
        or_none(text("/spec/proxyURL")),
    ])
}

/// The taint of a cordoned cluster.
const UNSCHEDULABLE: &str = "cluster.karmada.io/unschedulable";

/// Whether the cluster is ready, and whether it is cordoned, as for nodes.
fn readiness(object: &Value) -> Value {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let status = conditions
        .into_iter()
        .flatten()
        .find(|c| c.get("type").and_then(Value::as_str) == Some("Ready"))
        .and_then(|c| c.get("status")?.as_str());
    let status = status.unwrap_or("Unknown");
    let taints = object.pointer("/spec/taints").and_then(Value::as_array);
    let mut taints = taints.into_iter().flatten();
    match taints.any(|taint| taint["key"] == UNSCHEDULABLE) {
        true => format!("{status},SchedulingDisabled").into(),
        false => status.into(),
    }
}

fn zones(object: &Value) -> Value {
    let zones = object.pointer("/spec/zones").and_then(Value::as_array);
    let names: Vec<&str> = zones
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    Value::from(names.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: CLU-cordoned-column
    #[test]
    fn a_cordoned_cluster_is_marked() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
        for (taints, conditions, expected) in [
            (Value::Null, &ready, "True"),
            (taint("example.org/gpu"), &ready, "True"),
            (taint(UNSCHEDULABLE), &ready, "True,SchedulingDisabled"),
            (
                taint(UNSCHEDULABLE),
                &Value::Null,
                "Unknown,SchedulingDisabled",
            ),
        ] {
            let cluster = json!({"spec": {"taints": taints}, "status": {"conditions": conditions}});
            assert_eq!(readiness(&cluster), expected);
        }
    }
}
