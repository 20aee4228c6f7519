//! The cells that every kind has: name and age.

use jiff::Timestamp;
use serde_json::Value;

use super::human_duration::age;

/// `metadata.name`
pub(super) fn name_cell(object: &Value) -> Value {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    Value::from(name.unwrap_or_default())
}

/// Time since `metadata.creationTimestamp`.
pub(super) fn age_cell(object: &Value, now: Timestamp) -> Value {
    let at = object
        .pointer("/metadata/creationTimestamp")
        .and_then(Value::as_str);
    Value::from(age(at.unwrap_or_default(), now))
}
