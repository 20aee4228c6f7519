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

const INVALID_PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// The number of a percentage such as `25%`; one that is too large is the largest.
fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// The number or the percentage, which a text without `%` is not.
pub(crate) fn int_or_percent(value: &Value) -> i64 {
    let number = || value.as_i64().or_else(|| value.as_str()?.parse().ok());
    percent(value).or_else(number).unwrap_or(0)
}

/// Requires a number of at least 0, or a percentage.
pub(crate) fn validate_int_or_percent(field: &str, value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) || n.is_f64() => errors.push(
            FieldError::invalid(field, value, "must be greater than or equal to 0"),
        ),
        Value::Number(n) if n.as_i64().is_none_or(|n| n > i32::MAX.into()) => errors.push(
            FieldError::invalid(field, value, "must be less than or equal to 2147483647"),
        ),
        Value::String(_) if percent(value).is_none() => {
            errors.push(FieldError::invalid(field, value, INVALID_PERCENT));
        }
        _ => {}
    }
}

/// Requires a percentage of at most 100 %; a number may be any.
pub(crate) fn validate_at_most_100_percent(
    field: &str,
    value: &Value,
    errors: &mut Vec<FieldError>,
) {
    if percent(value).is_some_and(|n| n > 100) {
        errors.push(FieldError::invalid(
            field,
            value,
            "must not be greater than 100%",
        ));
    }
}
