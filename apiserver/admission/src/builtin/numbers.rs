//! Validates numbers that many kinds have.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{int, pointer};

/// Requires the number at a dotted path to be at least 0.
pub(super) fn validate_non_negative(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if let Some(n) = int(object, &pointer(field))
        && n < 0
    {
        errors.push(FieldError::invalid(
            field,
            &n.into(),
            "must be greater than or equal to 0",
        ));
    }
}

/// Requires a valid port number.
pub(crate) fn validate_port(field: impl Into<String>, port: i64, errors: &mut Vec<FieldError>) {
    if !(1..=65_535).contains(&port) {
        errors.push(FieldError::invalid(
            field,
            &port.into(),
            "must be between 1 and 65535, inclusive",
        ));
    }
}

/// Requires the number of a field of a part at `field` to be at least 0.
pub(super) fn validate_non_negative_at(
    field: &str,
    part: &Value,
    name: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(n) = int(part, &format!("/{name}")).filter(|n| *n < 0) {
        errors.push(FieldError::invalid(
            format!("{field}.{name}"),
            &n.into(),
            "must be greater than or equal to 0",
        ));
    }
}
