//! Reads and sets fields of an object; what is absent for Go counts as unset.

use serde_json::{Map, Value};

pub(super) type JsonObjectMap = Map<String, Value>;

/// Absent as for Go: no value, or the empty string.
pub(super) fn is_unset(fields: &JsonObjectMap, name: &str) -> bool {
    match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        _ => false,
    }
}

/// Sets a field that is unset.
pub(super) fn set_default(fields: &mut JsonObjectMap, name: &str, value: impl Into<Value>) {
    if is_unset(fields, name) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// As [`set_default`], for numbers whose zero means unset.
pub(super) fn set_default_number(fields: &mut JsonObjectMap, name: &str, value: i64) {
    if fields.get(name).and_then(Value::as_i64) == Some(0) {
        fields.remove(name);
    }
    set_default(fields, name, value);
}

pub(super) fn string_field<'a>(fields: &'a JsonObjectMap, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is_true(fields: &JsonObjectMap, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn is_empty(fields: &JsonObjectMap, name: &str) -> bool {
    match fields.get(name) {
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(inner)) => inner.is_empty(),
        _ => is_unset(fields, name),
    }
}

/// Calls `work` with an object-valued field, if it is present.
pub(super) fn with_object(
    fields: &mut JsonObjectMap,
    name: &str,
    work: impl FnOnce(&mut JsonObjectMap),
) {
    if let Some(Value::Object(inner)) = fields.get_mut(name) {
        work(inner);
    }
}

/// As [`with_object`], and creates the field first if it is unset.
pub(super) fn with_object_or_create(
    fields: &mut JsonObjectMap,
    name: &str,
    work: impl FnOnce(&mut JsonObjectMap),
) {
    set_default(fields, name, JsonObjectMap::new());
    with_object(fields, name, work);
}

/// Calls `work` with every object of a list-valued field.
pub(super) fn for_each_object(
    fields: &mut JsonObjectMap,
    name: &str,
    mut work: impl FnMut(&mut JsonObjectMap),
) {
    if let Some(Value::Array(items)) = fields.get_mut(name) {
        items
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(&mut work);
    }
}
