//! Validates the taints of Nodes and Clusters.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::{validate_label_value, validate_qualified_name};
use serde_json::Value;

use crate::unstructured::{index_path, report_invalid, text};

/// Validates taints at `field`. `render` writes a taint as the error for a duplicate shows it.
pub(crate) fn validate(
    field: &str,
    taints: &[Value],
    effects: &[&str],
    render: impl Fn(&Value) -> String,
    errors: &mut Vec<FieldError>,
) {
    let mut visited = HashSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let field = index_path(field, i);
        let (key, value) = (text(taint, "/key"), text(taint, "/value"));
        let result = validate_qualified_name(key);
        report_invalid(format!("{field}.key"), key, result, errors);
        let result = validate_label_value(value);
        report_invalid(format!("{field}.value"), value, result, errors);
        let effect = text(taint, "/effect");
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{field}.effect"), ""));
        } else if !effects.contains(&effect) {
            errors.push(FieldError::not_supported(
                format!("{field}.effect"),
                &effect.into(),
                effects,
            ));
        }
        if !visited.insert((key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate_rendered(
                field,
                &render(taint),
                detail,
            ));
        }
    }
}
