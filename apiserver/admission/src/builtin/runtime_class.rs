//! Validates RuntimeClass (`pkg/apis/node/validation`).

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::pod_scheduling::validate_toleration;
use crate::metadata;
use crate::resource_list::{ResourceListKind, validate_resource_list};
use crate::unstructured::{get, index_path, items, report_invalid, text, validate_immutable_field};

pub(super) fn validate_runtime_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let handler = text(new, "/handler");
    report_invalid("handler", handler, validate_dns1123_label(handler), errors);
    validate_resource_list(
        ResourceListKind::Container,
        "overhead.limits",
        get(new, "/overhead/podFixed"),
        errors,
    );
    let field = "scheduling";
    let selector = get(new, "/scheduling/nodeSelector");
    metadata::validate_labels(&format!("{field}.nodeSelector"), selector, errors);
    let mut visited = HashSet::new();
    for (i, toleration) in items(new, "/scheduling/tolerations").iter().enumerate() {
        let path = index_path(&format!("{field}.tolerations"), i);
        validate_toleration(&path, toleration, errors);
        let identity = ["key", "operator", "value", "effect"]
            .map(|part| text(toleration, &format!("/{part}")));
        if !visited.insert(identity) {
            errors.push(FieldError::duplicate(path, toleration));
        }
    }
    if let Some(old) = old {
        validate_immutable_field(new, old, "handler", errors);
    }
}
