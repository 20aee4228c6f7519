//! Rules of a ClusterAffinity, wherever it stands: placements, override rules,
//! taint policies.

use machinery::{FieldError, LabelSelector};
use serde_json::Value;

use crate::tree::{get, has, items, nth, text};

/// Field selector: keys provider, region, zone; operators In, NotIn.
pub(crate) fn validate(field: &str, affinity: &Value, errors: &mut Vec<FieldError>) {
    let base = format!("{field}.fieldSelector.matchExpressions");
    for (i, expression) in items(affinity, "/fieldSelector/matchExpressions")
        .iter()
        .enumerate()
    {
        let at = nth(&base, i);
        if !matches!(text(expression, "/key"), "provider" | "region" | "zone") {
            errors.push(FieldError::not_supported(
                format!("{at}.key"),
                get(expression, "/key"),
                &["provider", "region", "zone"],
            ));
        }
        if !matches!(text(expression, "/operator"), "In" | "NotIn") {
            errors.push(FieldError::not_supported(
                format!("{at}.operator"),
                get(expression, "/operator"),
                &["In", "NotIn"],
            ));
        }
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
