//! Reads and edits JSON values of unchecked shape.
//!
//! Null counts as absent everywhere. Numbers are doubles, as in TABLE.md.

use serde_json::{Map, Value};

pub(super) use crate::native::Error;

pub(super) type JsonMap = Map<String, Value>;

/// The error about a field, given as a JSON pointer.
pub(super) fn field_error(pointer: &str, expected: &'static str) -> Error {
    Error::Field {
        path: pointer.trim_start_matches('/').replace('/', "."),
        expected,
    }
}

/// The value at a JSON pointer, unless it is null.
pub(super) fn value_at<'a>(tree: &'a Value, pointer: &str) -> Option<&'a Value> {
    tree.pointer(pointer).filter(|value| !value.is_null())
}

pub(super) fn string_at<'a>(tree: &'a Value, pointer: &str) -> Option<&'a str> {
    tree.pointer(pointer).and_then(Value::as_str)
}

/// The string at a JSON pointer, unless it is empty.
pub(super) fn non_empty_string_at<'a>(tree: &'a Value, pointer: &str) -> Option<&'a str> {
    string_at(tree, pointer).filter(|text| !text.is_empty())
}

pub(super) fn list_at<'a>(tree: &'a Value, pointer: &str) -> &'a [Value] {
    let items = tree.pointer(pointer).and_then(Value::as_array);
    items.map(Vec::as_slice).unwrap_or_default()
}

/// The fields of the object at a JSON pointer, without nulls.
pub(super) fn fields_at<'a>(
    tree: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let fields = tree.pointer(pointer).and_then(Value::as_object);
    let present = |(_, value): &(&String, &Value)| !value.is_null();
    fields.into_iter().flatten().filter(present)
}

pub(super) fn required_value<'a>(
    tree: &'a Value,
    pointer: &str,
    expected: &'static str,
) -> Result<&'a Value, Error> {
    value_at(tree, pointer).ok_or_else(|| field_error(pointer, expected))
}

pub(super) fn required_number(tree: &Value, pointer: &str) -> Result<f64, Error> {
    let number = value_at(tree, pointer).and_then(Value::as_f64);
    number.ok_or_else(|| field_error(pointer, "a number"))
}

/// Zero when absent; fails when it is not a number.
pub(super) fn number_or_zero(tree: &Value, pointer: &str) -> Result<f64, Error> {
    match value_at(tree, pointer) {
        None => Ok(0.0),
        Some(_) => required_number(tree, pointer),
    }
}

/// A number, or a string that contains one.
pub(super) fn lenient_number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => parse_number(text.trim_matches([' ', '\n', '\t'])),
        _ => None,
    }
}

/// Parses an integer, decimal or hexadecimal, or a number with a decimal point.
fn parse_number(text: &str) -> Option<f64> {
    if text.contains('.') {
        return text.parse().ok();
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let integer = match hexadecimal {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    integer.ok().map(|n| n as f64)
}

/// A JSON number; an integer when there is no fraction.
pub(super) fn json_number(n: f64) -> Value {
    /// 2^53: up to here doubles represent all integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if n.fract() == 0.0 && n.abs() <= EXACT {
        (n as i64).into()
    } else {
        n.into()
    }
}

/// Compares numbers by value, and other values exactly. Absent equals only absent.
pub(super) fn values_equal(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.and_then(Value::as_f64), b.and_then(Value::as_f64)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

pub(super) fn set_or_remove(fields: &mut JsonMap, field: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}

/// Takes the object out of a field; empty if there is none.
pub(super) fn take_object(tree: &mut Value, field: &str) -> JsonMap {
    match tree.get_mut(field).map(Value::take) {
        Some(Value::Object(fields)) => fields,
        _ => JsonMap::new(),
    }
}

/// Sets a field, if the value is an object.
pub(super) fn set_field(tree: &mut Value, field: &str, value: Value) {
    if let Some(fields) = tree.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

/// Sets a field of the spec; fails when there is no spec.
pub(super) fn set_spec_field(object: &mut Value, field: &str, value: Value) -> Result<(), Error> {
    match object.get_mut("spec").and_then(Value::as_object_mut) {
        Some(spec) => {
            spec.insert(field.to_owned(), value);
            Ok(())
        }
        None => Err(field_error("/spec", "an object")),
    }
}

/// Retains a field of the observed spec, if it is present.
pub(super) fn retain_spec_field(
    desired: &mut Value,
    observed: &Value,
    field: &str,
) -> Result<(), Error> {
    let spec = required_value(observed, "/spec", "an object")?;
    match spec.get(field).filter(|value| !value.is_null()) {
        Some(value) => set_spec_field(desired, field, value.clone()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_read_from_text() {
        for (value, read) in [
            (json!(2), Some(2.0)),
            (json!("2"), Some(2.0)),
            (json!(" -3\n"), Some(-3.0)),
            (json!("+4"), Some(4.0)),
            (json!("0x1F"), Some(31.0)),
            (json!("0.4"), Some(0.4)),
            (json!("1."), Some(1.0)),
            (json!("1e3"), None),
            (json!("two"), None),
            (json!(""), None),
            (json!(true), None),
            (json!([1]), None),
            (Value::Null, None),
        ] {
            assert_eq!(lenient_number(Some(&value)), read, "{value}");
        }
        assert_eq!(lenient_number(None), None);
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(json_number(3.0), json!(3));
        assert_eq!(json_number(2.5), json!(2.5));
        assert!(values_equal(Some(&json!(1)), Some(&json!(1.0))));
        assert!(!values_equal(Some(&json!(0)), None) && values_equal(None, None));
    }
}
