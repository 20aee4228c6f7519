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

pub(super) fn validate_scale(at: &str, scale: &Value, errors: &mut Vec<FieldError>) {
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
    for (name, required, roots, place) in table {
        let value = text(scale, &format!("/{name}"));
        let field = format!("{at}.{name}");
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(field, ""));
            }
        } else if validate_simple_path(&field, value, errors)
            && !roots.iter().any(|root| value.starts_with(root))
        {
            let why = format!("should be a json path under {place}");
            errors.push(FieldError::invalid(field, &value.into(), why));
        }
    }
}

pub(super) fn validate_printer_columns(at: &str, version: &Value, errors: &mut Vec<FieldError>) {
    let columns = items(version, "/additionalPrinterColumns");
    for (i, column) in columns.iter().enumerate() {
        validate_printer_column(&index_path(at, i), column, errors);
    }
}

fn validate_printer_column(at: &str, column: &Value, errors: &mut Vec<FieldError>) {
    if text(column, "/name").is_empty() {
        errors.push(FieldError::required(format!("{at}.name"), ""));
    }
    let why = format!("must be one of {}", COLUMN_TYPES.join(","));
    let field = format!("{at}.type");
    match text(column, "/type") {
        "" => errors.push(FieldError::required(field, &why)),
        other if !COLUMN_TYPES.contains(&other) => {
            errors.push(FieldError::invalid(field, &other.into(), why));
        }
        _ => {}
    }
    let format = text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
        let field = format!("{at}.format");
        errors.push(FieldError::invalid(field, &format.into(), why));
    }
    let field = format!("{at}.JSONPath");
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
        let why = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(field, &path.into(), why));
    }
    is_simple
}
