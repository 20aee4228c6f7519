//! Validates the scale subresource and the printer columns of a version.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{index_path, items, text};

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

pub(super) fn validate_scale(path: &str, scale: &Value, errors: &mut Vec<FieldError>) {
    if scale.is_null() {
        return;
    }
    let table: [(&str, bool, &[&str], &str); 3] = [
        ("specReplicasPath", true, &[".spec."], ".spec"),
        ("statusReplicasPath", true, &[".status."], ".status"),
        (
            "labelSelectorPath",
            false,
            &[".spec.", ".status."],
            "either .spec or .status",
        ),
    ];
    for (name, required, roots, parents) in table {
        let value = text(scale, &format!("/{name}"));
        let field = format!("{path}.{name}");
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(field, ""));
            }
        } else if validate_simple_path(&field, value, errors)
            && !roots.iter().any(|root| value.starts_with(root))
        {
            let detail = format!("should be a json path under {parents}");
            errors.push(FieldError::invalid(field, &value.into(), detail));
        }
    }
}

pub(super) fn validate_printer_columns(path: &str, version: &Value, errors: &mut Vec<FieldError>) {
    let columns = items(version, "/additionalPrinterColumns");
    for (i, column) in columns.iter().enumerate() {
        validate_printer_column(&index_path(path, i), column, errors);
    }
}

fn validate_printer_column(column_path: &str, column: &Value, errors: &mut Vec<FieldError>) {
    if text(column, "/name").is_empty() {
        errors.push(FieldError::required(format!("{column_path}.name"), ""));
    }
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    let field = format!("{column_path}.type");
    match text(column, "/type") {
        "" => errors.push(FieldError::required(field, &detail)),
        other if !COLUMN_TYPES.contains(&other) => {
            errors.push(FieldError::invalid(field, &other.into(), detail));
        }
        _ => {}
    }
    let format = text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        let field = format!("{column_path}.format");
        errors.push(FieldError::invalid(field, &format.into(), detail));
    }
    let field = format!("{column_path}.JSONPath");
    match text(column, "/jsonPath") {
        "" => errors.push(FieldError::required(field, "")),
        path => {
            validate_simple_path(&field, path, errors);
        }
    }
}

/// Whether a path begins as it has to.
fn validate_simple_path(field: &str, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let is_simple = path.starts_with('.');
    if !is_simple {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(field, &path.into(), detail));
    }
    is_simple
}
