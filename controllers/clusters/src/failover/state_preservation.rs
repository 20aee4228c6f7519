//! State preservation: labels made from the status of a failed workload, injected into
//! its replacement. Pure.
//!
//! Karmada: `pkg/util/helper/failover.go`. Paths are templates as
//! `client-go/util/jsonpath` reads them: text outside braces is literal.

use std::collections::BTreeMap;

use karmada_api::binding::AggregatedStatusItem;
use karmada_api::failover::{StatePreservation, StatePreservationRule};
use openapi::JsonPath;
use serde_json::Value;

/// Why the state cannot be preserved; the workload must not be evicted then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StatePreservationError {
    #[error("the application status has not yet been collected from Cluster({0})")]
    NotCollected(String),
    #[error("state {label} at {path:?}: {why}")]
    Path {
        label: String,
        path: String,
        why: String,
    },
}

/// The labels that the rules extract from a cluster's status; empty without rules.
pub(super) fn preserved_labels(
    rules: Option<&StatePreservation>,
    statuses: &[AggregatedStatusItem],
    cluster: &str,
) -> Result<BTreeMap<String, String>, StatePreservationError> {
    let rules = rules.map_or(&[][..], |all| &all.rules);
    if rules.is_empty() {
        return Ok(BTreeMap::new());
    }
    let item = statuses.iter().find(|i| i.cluster_name == cluster);
    let status = item
        .and_then(|i| i.status.as_ref())
        .ok_or_else(|| StatePreservationError::NotCollected(cluster.to_owned()))?;
    rules
        .iter()
        .map(|rule| render_label(rule, status))
        .collect()
}

fn render_label(
    rule: &StatePreservationRule,
    status: &Value,
) -> Result<(String, String), StatePreservationError> {
    let text = render_template(&rule.json_path, status).map_err(|reason| {
        StatePreservationError::Path {
            label: rule.alias_label_name.clone(),
            path: rule.json_path.clone(),
            why: reason,
        }
    })?;
    Ok((rule.alias_label_name.clone(), text))
}

fn render_template(template: &str, status: &Value) -> Result<String, String> {
    let (mut rest, mut text) = (template, String::new());
    while let Some((before, after)) = rest.split_once('{') {
        let (path, next) = after.split_once('}').ok_or("a brace is not closed")?;
        text.push_str(before);
        let matches = JsonPath::compile(path)?;
        let matches = matches.find(status);
        if matches.is_empty() {
            return Err(format!("{} is not found", path.trim()));
        }
        let shown: Vec<String> = matches.into_iter().map(json_text).collect();
        text.push_str(&shown.join(" "));
        rest = next;
    }
    text.push_str(rest);
    Ok(text)
}

/// Scalars as text, other values as JSON.
fn json_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: APP-path
    #[test]
    fn templates_render_values_of_the_status() {
        let status = json!({"jobStatus": {"jobID": "ab12", "checkpoint": 9_007_199_254_740_993_i64},
            "replicas": 2, "up": true, "ports": [80, 443]});
        for (path, expected) in [
            ("{.jobStatus.jobID}", Ok("ab12")),
            ("{ .replicas }", Ok("2")),
            ("{.up}", Ok("true")),
            ("{.jobStatus.checkpoint}", Ok("9007199254740993")),
            ("n{.replicas}-{.jobStatus.jobID}", Ok("n2-ab12")),
            ("{.ports[*]}", Ok("80 443")),
            ("{.ports}", Ok("[80,443]")),
            (".replicas", Ok(".replicas")),
            ("{.missing}", Err(".missing is not found")),
            ("{.replicas", Err("a brace is not closed")),
        ] {
            let actual = render_template(path, &status);
            assert_eq!(actual, expected.map(str::to_owned).map_err(str::to_owned));
        }
        assert!(render_template("{.a[}", &status).is_err());
    }

    // proves: APP-state-first
    #[test]
    fn without_a_status_there_is_no_state() {
        let rules = |rules: Value| {
            serde_json::from_value::<StatePreservation>(json!({"rules": rules})).unwrap()
        };
        let one = rules(json!([{"aliasLabelName": "id", "jsonPath": "{.id}"}]));
        let items: Vec<AggregatedStatusItem> = serde_json::from_value(
            json!([{"clusterName": "a", "status": {"id": "x"}}, {"clusterName": "b"}]),
        )
        .unwrap();
        let check = |rules: Option<&StatePreservation>, cluster: &str| {
            preserved_labels(rules, &items, cluster).map(|l| l.get("id").cloned())
        };
        assert_eq!(check(None, "b"), Ok(None));
        assert_eq!(check(Some(&rules(json!([]))), "b"), Ok(None));
        assert_eq!(check(Some(&one), "a"), Ok(Some("x".into())));
        for cluster in ["b", "c"] {
            let error = check(Some(&one), cluster).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("from Cluster({cluster})")),
                "{error}"
            );
        }
    }
}
