//! Validates ClusterAffinity, which placements, override rules and taint policies
//! contain.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{get, has, items, text};

/// Validates the field selector: keys provider, region and zone, operators In and
/// NotIn. Reports the first error only.
pub(crate) fn validate(field: &str, affinity: &Value, errors: &mut Vec<FieldError>) {
    let expressions = items(affinity, "/fieldSelector/matchExpressions");
    let invalid = expressions.iter().find_map(|expression| {
        let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
        if !matches!(key, "provider" | "region" | "zone") {
            return Some(format!(
                "unsupported key {key:?}, must be provider, region, or zone"
            ));
        }
        (!matches!(operator, "In" | "NotIn"))
            .then(|| format!("unsupported operator {operator:?}, must be In or NotIn"))
    });
    if let Some(detail) = invalid {
        errors.push(FieldError::invalid(
            format!("{field}.fieldSelector"),
            get(affinity, "/fieldSelector"),
            detail,
        ));
    }
}

/// Whether the affinity selects nothing by itself.
pub(crate) fn is_empty(affinity: &Value) -> bool {
    !has(affinity, "/labelSelector")
        && !has(affinity, "/fieldSelector")
        && items(affinity, "/clusterNames").is_empty()
        && items(affinity, "/exclude").is_empty()
}
