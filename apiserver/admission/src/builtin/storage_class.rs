//! Validates StorageClass (`pkg/apis/storage/validation`).

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use crate::unstructured::{
    entries, get, index_path, items, report_invalid, text, texts, validate_immutable_field,
};

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 << 10;

pub(super) fn validate_storage_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let provisioner = text(new, "/provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        let result = validate_qualified_name(&provisioner.to_lowercase());
        report_invalid("provisioner", provisioner, result, errors);
    }
    validate_parameters(new, errors);
    for (field, choices) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        let value = text(new, &format!("/{field}"));
        if !value.is_empty() && !choices.contains(&value) {
            errors.push(FieldError::not_supported(field, &value.into(), &choices));
        }
    }
    validate_allowed_topologies(items(new, "/allowedTopologies"), errors);
    let Some(old) = old else {
        return;
    };
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        let path = format!("/{field}");
        if get(new, &path) != get(old, &path) {
            errors.push(FieldError::forbidden(
                field,
                &format!("updates to {field} are forbidden."),
            ));
        }
    }
    validate_immutable_field(new, old, "volumeBindingMode", errors);
}

fn validate_parameters(class: &Value, errors: &mut Vec<FieldError>) {
    let field = "parameters";
    let parameters: Vec<(&str, &Value)> = entries(class, "/parameters").collect();
    if parameters.len() > MAX_PARAMETERS {
        errors.push(FieldError::too_long(field, MAX_PARAMETERS));
        return;
    }
    if parameters.iter().any(|(key, _)| key.is_empty()) {
        let detail = "field can not be empty.";
        errors.push(FieldError::invalid(field, &"".into(), detail));
    }
    let bytes = |(key, value): &(&str, &Value)| key.len() + value.as_str().unwrap_or("").len();
    if parameters.iter().map(bytes).sum::<usize>() > MAX_PARAMETER_BYTES {
        errors.push(FieldError::too_long(field, MAX_PARAMETER_BYTES));
    }
}

/// Requires each term to name labels and their values, and no two terms the same.
fn validate_allowed_topologies(terms: &[Value], errors: &mut Vec<FieldError>) {
    let mut visited = HashSet::new();
    for (i, term) in terms.iter().enumerate() {
        let field = format!(
            "{}.matchLabelExpressions",
            index_path("allowedTopologies", i)
        );
        let expressions = items(term, "/matchLabelExpressions");
        let mut keys = HashSet::new();
        for (j, expression) in expressions.iter().enumerate() {
            let path = index_path(&field, j);
            validate_values(&format!("{path}.values"), expression, errors);
            let (path, key) = (format!("{path}.key"), text(expression, "/key"));
            report_invalid(&path, key, validate_qualified_name(key), errors);
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(path, &key.into()));
            }
        }
        // A term without expressions counts as one that was there before.
        if !visited.insert(topology(expressions)) || expressions.is_empty() {
            errors.push(FieldError::duplicate(field, &"".into()));
        }
    }
}

fn validate_values(field: &str, expression: &Value, errors: &mut Vec<FieldError>) {
    let mut visited = HashSet::new();
    for (i, value) in texts(expression, "/values").enumerate() {
        if !visited.insert(value) {
            let path = index_path(field, i);
            errors.push(FieldError::duplicate(path, &value.into()));
        }
    }
    if visited.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
}

/// The labels of a term with their values, whose order does not matter.
fn topology(expressions: &[Value]) -> Vec<(&str, Vec<&str>)> {
    let sorted_values = |expression| {
        let mut values: Vec<&str> = texts(expression, "/values").collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let labels = expressions.iter();
    let mut labels: Vec<_> = labels
        .map(|expression| (text(expression, "/key"), sorted_values(expression)))
        .collect();
    labels.sort_unstable();
    labels
}
