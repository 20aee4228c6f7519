//! Reads and edits JSON values of unchecked shape.
//!
//! Null counts as absent everywhere. Numbers are doubles, as in TABLE.md.

use serde_json::{Map, Value};

pub(super) use crate::native::Error;

pub(super) type Fields = Map<String, Value>;

/// The error about a field, given as a JSON pointer.
pub(super) fn lacks(pointer: &str, expected: &'static str) -> Error {
    Error::Field {
        path: pointer.trim_start_matches('/').replace('/', "."),
        expected,
    }
}

/// The value at a JSON pointer, unless it is null.
pub(super) fn at<'a>(tree: &'a Value, pointer: &str) -> Option<&'a Value> {
    tree.pointer(pointer).filter(|found| !found.is_null())
}

pub(super) fn text<'a>(tree: &'a Value, pointer: &str) -> Option<&'a str> {
    tree.pointer(pointer).and_then(Value::as_str)
}

/// The string at a JSON pointer, unless it is empty.
pub(super) fn said<'a>(tree: &'a Value, pointer: &str) -> Option<&'a str> {
    text(tree, pointer).filter(|text| !text.is_empty())
}

pub(super) fn list<'a>(tree: &'a Value, pointer: &str) -> &'a [Value] {
    let found = tree.pointer(pointer).and_then(Value::as_array);
    found.map(Vec::as_slice).unwrap_or_default()
}

/// The fields of the object at a JSON pointer, without nulls.
pub(super) fn entries<'a>(
    tree: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let found = tree.pointer(pointer).and_then(Value::as_object);
    let present = |(_, value): &(&String, &Value)| !value.is_null();
    found.into_iter().flatten().filter(present)
}

pub(super) fn needed<'a>(
    tree: &'a Value,
    pointer: &str,
    expected: &'static str,
) -> Result<&'a Value, Error> {
    at(tree, pointer).ok_or_else(|| lacks(pointer, expected))
}

pub(super) fn needed_number(tree: &Value, pointer: &str) -> Result<f64, Error> {
    let found = at(tree, pointer).and_then(Value::as_f64);
    found.ok_or_else(|| lacks(pointer, "a number"))
}

/// Zero when absent; fails when it is not a number.
pub(super) fn number_or_zero(tree: &Value, pointer: &str) -> Result<f64, Error> {
    match at(tree, pointer) {
        None => Ok(0.0),
        Some(_) => needed_number(tree, pointer),
    }
}

/// A number, or a string that contains one.
pub(super) fn readable_number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => parsed(text.trim_matches([' ', '\n', '\t'])),
        _ => None,
    }
}

/// Parses an integer, decimal or hexadecimal, or a number with a decimal point.
fn parsed(text: &str) -> Option<f64> {
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
pub(super) fn number(n: f64) -> Value {
    /// 2^53: up to here doubles represent all integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if n.fract() == 0.0 && n.abs() <= EXACT {
        (n as i64).into()
    } else {
        n.into()
    }
}

/// Compares numbers by value, and other values exactly. Absent equals only absent.
pub(super) fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.and_then(Value::as_f64), b.and_then(Value::as_f64)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

pub(super) fn set(fields: &mut Fields, field: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(field.to_owned(), value),
        None => fields.remove(field),
    };
}

/// Takes the object out of a field; empty if there is none.
pub(super) fn take(tree: &mut Value, field: &str) -> Fields {
    match tree.get_mut(field).map(Value::take) {
        Some(Value::Object(fields)) => fields,
        _ => Fields::new(),
    }
}

/// Sets a field, if the value is an object.
pub(super) fn put(tree: &mut Value, field: &str, value: Value) {
    if let Some(fields) = tree.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

/// Sets a field of the spec; fails when there is no spec.
pub(super) fn put_in_spec(object: &mut Value, field: &str, value: Value) -> Result<(), Error> {
    match object.get_mut("spec").and_then(Value::as_object_mut) {
        Some(spec) => {
            spec.insert(field.to_owned(), value);
            Ok(())
        }
        None => Err(lacks("/spec", "an object")),
    }
}

/// Retains a field of the observed spec, if it is present.
pub(super) fn keep_in_spec(
    desired: &mut Value,
    observed: &Value,
    field: &str,
) -> Result<(), Error> {
    let spec = needed(observed, "/spec", "an object")?;
    match spec.get(field).filter(|value| !value.is_null()) {
        Some(value) => put_in_spec(desired, field, value.clone()),
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
            assert_eq!(readable_number(Some(&value)), read, "{value}");
        }
        assert_eq!(readable_number(None), None);
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(number(3.0), json!(3));
        assert_eq!(number(2.5), json!(2.5));
        assert!(same(Some(&json!(1)), Some(&json!(1.0))));
        assert!(!same(Some(&json!(0)), None) && same(None, None));
    }
}
