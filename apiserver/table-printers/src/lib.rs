//! Renders objects as rows of a `meta.k8s.io/v1` Table, as `kubectl get` shows them.
//!
//! Cells are strings, numbers, booleans or null. Rules of
//! `apiextensions-apiserver/pkg/registry/customresource/tableconvertor`.

mod builtin;
mod column_definition;
mod human_duration;
mod karmada_cluster;
mod metadata_cells;
mod resource_metrics;

use jiff::Timestamp;
use openapi::{KindInfo, PrinterColumn};
use serde_json::Value;

use metadata_cells::{age_cell, name_cell};

pub use column_definition::TableColumnDefinition;
pub use human_duration::{age, human_duration};

/// Longest text of a cell, in bytes.
const MAX_CELL_BYTES: usize = 4096;

/// The columns of a kind: the columns of its built-in printer, `Name` and its declared columns, or
/// `Name` and `Age`.
pub fn columns(kind: &KindInfo) -> Vec<TableColumnDefinition> {
    let builtin_columns = builtin::columns(kind)
        .or_else(|| karmada_cluster::columns(kind))
        .or_else(|| resource_metrics::columns(kind));
    if let Some(headers) = builtin_columns {
        return headers;
    }
    let mut headers = vec![
        TableColumnDefinition::new("Name", "string")
            .with_description("Name of the object, unique in its namespace."),
    ];
    if kind.columns.is_empty() {
        headers.push(
            TableColumnDefinition::new("Age", "date")
                .with_description("Time since the object was created."),
        );
    }
    headers.extend(kind.columns.iter().map(|c| TableColumnDefinition {
        name: c.name.clone(),
        ty: c.ty.clone(),
        format: c.format.clone(),
        description: c.description.clone(),
        priority: c.priority,
    }));
    headers
}

/// The cells of one object, one per column.
pub fn cells(kind: &KindInfo, object: &Value, now: Timestamp) -> Vec<Value> {
    let builtin_cells = builtin::cells(kind, object, now)
        .or_else(|| karmada_cluster::cells(kind, object, now))
        .or_else(|| resource_metrics::cells(kind, object));
    if let Some(cells) = builtin_cells {
        return cells;
    }
    let mut cells = vec![name_cell(object)];
    if kind.columns.is_empty() {
        cells.push(age_cell(object, now));
    }
    cells.extend(kind.columns.iter().map(|c| column_cell(c, object, now)));
    cells
}

/// The cell of a declared column.
fn column_cell(column: &PrinterColumn, object: &Value, now: Timestamp) -> Value {
    // Of several values, Kubernetes shows the first.
    let Some(value) = column.path.first(object) else {
        return Value::Null;
    };
    match column.ty.as_str() {
        "integer" => value
            .as_i64()
            .map_or_else(|| truncated_integer(value), Value::from),
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "date" => Value::from(age(value.as_str().unwrap_or_default(), now)),
        "string" => Value::from(truncate_cell(value_text(value))),
        _ => Value::Null,
    }
}

/// A number with a fraction in an integer column, truncated.
fn truncated_integer(value: &Value) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the conversion saturates, as Go's does not; only shown"
    )]
    value
        .as_f64()
        .map_or(Value::Null, |n| Value::from(n.trunc() as i64))
}

/// A value as text: strings unquoted, other values as JSON.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn truncate_cell(mut text: String) -> String {
    if text.len() > MAX_CELL_BYTES {
        let end = text.floor_char_boundary(MAX_CELL_BYTES);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use machinery::Gvk;
    use serde_json::json;

    use super::*;
    use openapi::catalog;

    #[test]
    fn durations_are_those_of_kubectl() {
        let table = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (8 * 365 * 86400, "8y"),
        ];
        for (seconds, expect) in table {
            assert_eq!(
                human_duration(SignedDuration::from_secs(seconds)),
                expect,
                "{seconds}"
            );
        }
    }

    fn check(gvk: &Gvk, object: &Value, expect: &[(&str, Value)]) {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let kind = catalog().kind(gvk).unwrap();
        let headers = columns(kind);
        let cells = cells(kind, object, now);
        assert_eq!(headers.len(), cells.len());
        let actual: Vec<(&str, Value)> = headers
            .iter()
            .map(|h| h.name.as_str())
            .zip(cells.iter().cloned())
            .collect();
        assert_eq!(actual, expect);
    }

    #[test]
    fn karmada_kinds_have_their_columns() {
        let meta = json!({"name": "n", "creationTimestamp": "2026-01-02T03:00:00Z"});
        check(
            &Gvk::from_static("policy.karmada.io", "v1alpha1", "PropagationPolicy"),
            &json!({"metadata": meta, "spec": {"conflictResolution": "Abort", "priority": 3}}),
            &[
                ("Name", json!("n")),
                ("CONFLICT-RESOLUTION", json!("Abort")),
                ("PRIORITY", json!("3")),
                ("AGE", json!("4m5s")),
            ],
        );
        check(
            &Gvk::from_static("work.karmada.io", "v1alpha2", "ResourceBinding"),
            &json!({"metadata": meta, "status": {"conditions": [
                {"type": "Scheduled", "status": "True"}]}}),
            &[
                ("Name", json!("n")),
                ("SCHEDULED", json!("True")),
                ("FULLYAPPLIED", json!(null)),
                ("AGE", json!("4m5s")),
            ],
        );
        check(
            &Gvk::from_static("policy.karmada.io", "v1alpha1", "OverridePolicy"),
            &json!({"metadata": {"name": "n"}}),
            &[("Name", json!("n")), ("Age", json!("<unknown>"))],
        );
        check(
            &Gvk::from_static("policy.karmada.io", "v1alpha1", "FederatedResourceQuota"),
            &json!({"metadata": meta, "status": {"overall": {"cpu": "1"}}}),
            &[
                ("Name", json!("n")),
                ("OVERALL", json!("{\"cpu\":\"1\"}")),
                ("OVERALL_USED", json!(null)),
            ],
        );
    }

    #[test]
    fn multicluster_kinds_have_their_columns() {
        let meta = json!({"name": "n", "creationTimestamp": "2026-01-02T03:00:00Z"});
        check(
            &Gvk::from_static("multicluster.x-k8s.io", "v1alpha1", "ServiceExport"),
            &json!({"metadata": meta}),
            &[("Name", json!("n")), ("Age", json!("4m5s"))],
        );
        check(
            &Gvk::from_static("multicluster.x-k8s.io", "v1alpha1", "ServiceImport"),
            &json!({"metadata": meta, "spec": {"type": "ClusterSetIP", "ips": ["42.42.42.42"]}}),
            &[
                ("Name", json!("n")),
                ("Type", json!("ClusterSetIP")),
                ("IP", json!("[\"42.42.42.42\"]")),
                ("Age", json!("4m5s")),
            ],
        );
    }

    #[test]
    fn clusters_have_their_own_printer() {
        let gvk = Gvk::from_static("cluster.karmada.io", "v1alpha1", "Cluster");
        check(
            &gvk,
            &json!({
                "metadata": {"name": "m1", "creationTimestamp": "2026-01-01T03:04:05Z"},
                "spec": {"syncMode": "Push", "zones": ["a", "b"], "apiEndpoint": "https://x"},
                "status": {"kubernetesVersion": "v1.36.0",
                           "conditions": [{"type": "Ready", "status": "True"}]}}),
            &[
                ("Name", json!("m1")),
                ("Version", json!("v1.36.0")),
                ("Mode", json!("Push")),
                ("Ready", json!("True")),
                ("Age", json!("24h")),
                ("Zones", json!("a,b")),
                ("Region", json!("<none>")),
                ("Provider", json!("<none>")),
                ("API-Endpoint", json!("https://x")),
                ("Proxy-URL", json!("<none>")),
            ],
        );
        check(
            &gvk,
            &json!({"metadata": {"name": "m1"}}),
            &[
                ("Name", json!("m1")),
                ("Version", json!("")),
                ("Mode", json!("")),
                ("Ready", json!("Unknown")),
                ("Age", json!("<unknown>")),
                ("Zones", json!("<none>")),
                ("Region", json!("<none>")),
                ("Provider", json!("<none>")),
                ("API-Endpoint", json!("")),
                ("Proxy-URL", json!("<none>")),
            ],
        );
    }
}
