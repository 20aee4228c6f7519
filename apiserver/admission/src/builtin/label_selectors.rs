//! Validates label selectors of built-in kinds, each part at its own path
//! (`apimachinery/pkg/apis/meta/v1/validation`).

use machinery::FieldError;
use machinery::names::{validate_label_value, validate_qualified_name};
use serde_json::Value;

use crate::metadata;
use crate::unstructured::{get, index_path, items, report_invalid, text, texts};

/// The values that an update may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectorValues {
    Strict,
    /// The old selector has expressions with values that no label can have.
    Kept,
}

impl SelectorValues {
    /// The rule for an update of these selectors.
    pub(super) fn of_old<'a>(selectors: impl IntoIterator<Item = &'a Value>) -> Self {
        let is_invalid = |selector: &Value| {
            let mut expressions = items(selector, "/matchExpressions").iter();
            expressions.any(|e| texts(e, "/values").any(|v| validate_label_value(v).is_err()))
        };
        match selectors.into_iter().any(is_invalid) {
            true => Self::Kept,
            false => Self::Strict,
        }
    }
}

/// Validates a selector; one that is absent is valid.
pub(crate) fn validate_label_selector(
    field: &str,
    selector: &Value,
    values: SelectorValues,
    errors: &mut Vec<FieldError>,
) {
    let labels = get(selector, "/matchLabels");
    metadata::validate_labels(&format!("{field}.matchLabels"), labels, errors);
    for (i, expression) in items(selector, "/matchExpressions").iter().enumerate() {
        let path = index_path(&format!("{field}.matchExpressions"), i);
        validate_expression(&path, expression, values, errors);
    }
}

fn validate_expression(
    field: &str,
    expression: &Value,
    values: SelectorValues,
    errors: &mut Vec<FieldError>,
) {
    let listed = items(expression, "/values");
    let operator = text(expression, "/operator");
    match operator {
        "In" | "NotIn" if listed.is_empty() => errors.push(FieldError::required(
            format!("{field}.values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !listed.is_empty() => errors.push(FieldError::forbidden(
            format!("{field}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.push(FieldError::invalid(
            format!("{field}.operator"),
            &operator.into(),
            "not a valid selector operator",
        )),
    }
    let key = text(expression, "/key");
    let result = validate_qualified_name(key);
    report_invalid(format!("{field}.key"), key, result, errors);
    if values == SelectorValues::Kept {
        return;
    }
    for (i, value) in texts(expression, "/values").enumerate() {
        let path = index_path(&format!("{field}.values"), i);
        report_invalid(path, value, validate_label_value(value), errors);
    }
}
