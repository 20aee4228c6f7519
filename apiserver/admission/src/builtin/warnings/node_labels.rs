//! Warns of deprecated labels of nodes (`pkg/api/node/util.go`).

use machinery::names::validate_label_value;
use serde_json::Value;

use crate::unstructured::{items, text};

const DEPRECATED_NODE_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
    ),
    (
        "beta.kubernetes.io/os",
        r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        r#"use "node-role.kubernetes.io/control-plane" instead"#,
    ),
];

/// The warning about a deprecated label.
pub(super) fn deprecation(label: &str) -> Option<&'static str> {
    let mut all = DEPRECATED_NODE_LABELS.iter();
    all.find(|(key, _)| *key == label)
        .map(|(_, detail)| *detail)
}

/// Warns of deprecated keys in the expressions of a selector at `field`.
pub(super) fn expressions(field: &str, expressions: &[Value], out: &mut Vec<String>) {
    for (i, expression) in expressions.iter().enumerate() {
        let key = text(expression, "/key");
        if let Some(detail) = deprecation(key) {
            out.push(format!(
                "{field}.matchExpressions[{i}].key: {key} is {detail}"
            ));
        }
    }
}

/// Warns of values that no label has: such a term prefers no node.
pub(super) fn label_values(field: &str, expressions: &[Value], out: &mut Vec<String>) {
    for (i, expression) in expressions.iter().enumerate() {
        for (j, value) in items(expression, "/values").iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            if let Err(detail) = validate_label_value(value) {
                out.push(format!(
                    "{field}.matchExpressions[{i}].values[{j}]: {value} is invalid, {detail}"
                ));
            }
        }
    }
}
