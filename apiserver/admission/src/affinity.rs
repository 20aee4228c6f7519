//! Rules of a ClusterAffinity, wherever it stands: placements, override rules,
//! taint policies.

use machinery::{FieldError, LabelSelector};
use serde_json::Value;

use crate::tree::{get, has, items, text};

/// Field selector: keys provider, region, zone; operators In, NotIn. The first
/// trouble is the one told.
pub(crate) fn validate(field: &str, affinity: &Value, errors: &mut Vec<FieldError>) {
    let expressions = items(affinity, "/fieldSelector/matchExpressions");
    let trouble = expressions.iter().find_map(|expression| {
        let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
        if !matches!(key, "provider" | "region" | "zone") {
            return Some(format!(
                "unsupported key {key:?}, must be provider, region, or zone"
            ));
        }
        (!matches!(operator, "In" | "NotIn"))
            .then(|| format!("unsupported operator {operator:?}, must be In or NotIn"))
    });
    if let Some(why) = trouble {
        errors.push(FieldError::invalid(
            format!("{field}.fieldSelector"),
            get(affinity, "/fieldSelector"),
            why,
        ));
    }
}

/// A label selector that Kubernetes would refuse.
pub(crate) fn label_selector(field: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    if !selector.is_null()
        && let Err(why) = LabelSelector::from_value(selector)
    {
        errors.push(FieldError::invalid(field, selector, why));
    }
}

/// Whether the affinity says nothing.
pub(crate) fn is_empty(affinity: &Value) -> bool {
    !has(affinity, "/labelSelector")
        && !has(affinity, "/fieldSelector")
        && items(affinity, "/clusterNames").is_empty()
        && items(affinity, "/exclude").is_empty()
}
