//! Prints Clusters, for which Karmada has a printer instead of declared columns (Karmada
//! `pkg/printers/internalversion/printers.go`).

use jiff::Timestamp;
use serde_json::Value;

use super::{Header, created, name};
use crate::model::Kind;

fn is_cluster(kind: &Kind) -> bool {
    kind.gvk.group == "cluster.karmada.io" && kind.gvk.kind == "Cluster"
}

pub(super) fn columns(kind: &Kind) -> Option<Vec<Header>> {
    is_cluster(kind).then(|| {
        vec![
            Header::new("Name", "string").about("Name of the cluster."),
            Header::new("Version", "string").about("Kubernetes version of the cluster."),
            Header::new("Mode", "string").about("How the cluster is synchronized: Push or Pull."),
            Header::new("Ready", "string").about("Whether the cluster is ready."),
            Header::new("Age", "string").about("Time since the cluster was registered."),
            Header::new("Zones", "string").wide(),
            Header::new("Region", "string").wide(),
            Header::new("Provider", "string").wide(),
            Header::new("API-Endpoint", "string").wide(),
            Header::new("Proxy-URL", "string").wide(),
        ]
    })
}

pub(super) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
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
        name(object),
        text("/status/kubernetesVersion"),
        text("/spec/syncMode"),
        ready(object),
        created(object, now),
        or_none(zones(object)),
        or_none(text("/spec/region")),
        or_none(text("/spec/provider")),
        text("/spec/apiEndpoint"),
        or_none(text("/spec/proxyURL")),
    ])
}

fn ready(object: &Value) -> Value {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let status = conditions
        .into_iter()
        .flatten()
        .find(|c| c.get("type").and_then(Value::as_str) == Some("Ready"))
        .and_then(|c| c.get("status")?.as_str());
    Value::from(status.unwrap_or("Unknown"))
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
