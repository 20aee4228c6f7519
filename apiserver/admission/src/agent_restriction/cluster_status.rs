//! Bounds what an agent reports of its Cluster. Does no I/O.

use serde_json::Value;

use super::agent_write::shown;
use super::work::check_conditions;
use crate::unstructured::get;

/// The most items of a list: the API groups of a member, and the resources of a group.
const MAX_ITEMS: usize = 2000;
/// The most entries of a map, such as the resources of all nodes.
const MAX_ENTRIES: usize = 512;
/// The length of texts; messages of conditions may be longer.
const MAX_TEXT_BYTES: usize = 1024;

/// Fails unless an agent may report the status. The actions of Remedies are the control plane's.
pub(super) fn check_cluster_status(new: &Value, old: &Value) -> Result<(), String> {
    check_conditions(new)?;
    let actions = "/status/remedyActions";
    if get(new, actions) != get(old, actions) {
        return Err("status.remedyActions: may not be changed by an agent".into());
    }
    check_sizes(get(new, "/status"), "status")
}

/// Every list, map and text of a status is bounded; the schema bounds the depth.
fn check_sizes(value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::String(text) if text.len() > MAX_TEXT_BYTES && !is_message(path) => {
            Err(format!("{path}: must have at most {MAX_TEXT_BYTES} bytes"))
        }
        Value::Array(items) if items.len() > MAX_ITEMS => {
            Err(format!("{path}: must have at most {MAX_ITEMS} items"))
        }
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(i, item)| check_sizes(item, &format!("{path}[{i}]")))
        }
        Value::Object(entries) if entries.len() > MAX_ENTRIES => {
            Err(format!("{path}: must have at most {MAX_ENTRIES} entries"))
        }
        Value::Object(entries) => entries.iter().try_for_each(|(key, value)| {
            let path = format!("{path}.{}", shown(key));
            match key.len() > MAX_TEXT_BYTES {
                true => Err(format!("{path}: must have at most {MAX_TEXT_BYTES} bytes")),
                false => check_sizes(value, &path),
            }
        }),
        _ => Ok(()),
    }
}

/// [`check_conditions`] bounds these.
fn is_message(path: &str) -> bool {
    path.starts_with("status.conditions[") && path.ends_with("].message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: AGT-status
    #[test]
    fn what_an_agent_reports_of_its_cluster_is_bounded() {
        let long_text = "x".repeat(MAX_TEXT_BYTES + 1);
        let entries = |count: usize| {
            let all = (0..count).map(|i| (format!("r{i}"), json!("1")));
            Value::Object(all.collect())
        };
        let enablements = |count: usize| json!(vec![json!({"groupVersion": "v1"}); count]);
        for (field, value, error_prefix) in [
            ("apiEnablements", enablements(MAX_ITEMS), None),
            (
                "apiEnablements",
                enablements(MAX_ITEMS + 1),
                Some("status.apiEnablements: "),
            ),
            (
                "apiEnablements",
                json!([{"resources": vec![json!({"kind": "A"}); MAX_ITEMS + 1]}]),
                Some("status.apiEnablements[0].resources: "),
            ),
            (
                "kubernetesVersion",
                json!(long_text),
                Some("status.kubernetesVersion: "),
            ),
            (
                "resourceSummary",
                json!({"allocatable": entries(512)}),
                None,
            ),
            (
                "resourceSummary",
                json!({"allocatable": entries(513)}),
                Some("status.resourceSummary.allocatable: "),
            ),
            (
                "resourceSummary",
                json!({"allocatableModelings": vec![json!({"grade": 0}); MAX_ITEMS + 1]}),
                Some("status.resourceSummary.allocatableModelings: "),
            ),
            (
                "nodeSummary",
                json!({long_text.as_str(): 1}),
                Some("status.nodeSummary.xxx"),
            ),
            ("conditions", json!([{"message": long_text}]), None),
            (
                "conditions",
                json!([{"reason": long_text}]),
                Some("status.conditions[0].reason: "),
            ),
            (
                "remedyActions",
                json!(["TrafficControl"]),
                Some("status.remedyActions: "),
            ),
        ] {
            let new = json!({"status": {field: value}});
            let checked = check_cluster_status(&new, &json!({"status": {}}));
            match error_prefix {
                None => assert_eq!(checked, Ok(()), "{field}"),
                Some(expected) => {
                    let error = checked.unwrap_err();
                    assert!(error.starts_with(expected), "{error}");
                }
            }
        }
        let remedied = json!({"status": {"remedyActions": ["TrafficControl"]}});
        assert_eq!(check_cluster_status(&remedied, &remedied), Ok(()));
    }
}
