//! Accessors for JSON values of unknown type (like apimachinery's `unstructured`):
//! absent fields and fields of another type read as empty. The schema is checked
//! elsewhere.
//!
//! Paths are JSON pointers below the given value.

use machinery::FieldError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// JSON pointer escapes are not supported; decoding them would copy every name twice.
pub(crate) fn get<'a>(value: &'a Value, path: &str) -> &'a Value {
    let names = path.split('/').skip(1);
    descend(value, names).unwrap_or(&NULL)
}

fn descend<'a, 'p>(
    value: &'a Value,
    mut names: impl Iterator<Item = &'p str>,
) -> Option<&'a Value> {
    names.try_fold(value, |parent, name| match parent {
        Value::Object(map) => map.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Whether the field is present and not `null`.
pub(crate) fn has(value: &Value, path: &str) -> bool {
    !get(value, path).is_null()
}

pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    get(value, path).as_str().unwrap_or("")
}

pub(crate) fn flag(value: &Value, path: &str) -> bool {
    get(value, path).as_bool().unwrap_or(false)
}

pub(crate) fn int(value: &Value, path: &str) -> Option<i64> {
    get(value, path).as_i64()
}

pub(crate) fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    get(value, path).as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn texts<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a str> {
    items(value, path).iter().filter_map(Value::as_str)
}

/// The entries of an object.
pub(crate) fn entries<'a>(
    value: &'a Value,
    path: &str,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = get(value, path).as_object();
    map.into_iter().flatten().map(|(k, v)| (k.as_str(), v))
}

/// The object at a path, created when absent. `None` when the value is something else.
pub(crate) fn object_mut<'a>(
    value: &'a mut Value,
    names: &[&str],
) -> Option<&'a mut Map<String, Value>> {
    let mut node = value;
    for name in names {
        let next = node.as_object_mut()?.entry(*name).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        node = next;
    }
    node.as_object_mut()
}

pub(crate) fn items_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    match value.pointer_mut(path) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}

/// `base[i]`
pub(crate) fn index_path(base: &str, i: usize) -> String {
    format!("{base}[{i}]")
}

/// Reports a field whose value has changed.
pub(crate) fn validate_immutable_field(
    new: &Value,
    old: &Value,
    field: &str,
    errors: &mut Vec<FieldError>,
) {
    let field_value = |value| descend(value, field.split('.')).unwrap_or(&NULL);
    let (new, old) = (field_value(new), field_value(old));
    if new != old {
        errors.push(FieldError::invalid(field, new, "field is immutable"));
    }
}

/// `a.b.c` → `/a/b/c`
pub(crate) fn pointer(field: &str) -> String {
    format!("/{}", field.replace('.', "/"))
}

/// Reports a failed check as an invalid value of the field.
pub(crate) fn report_invalid(
    field: impl Into<String>,
    value: &str,
    result: Result<(), String>,
    errors: &mut Vec<FieldError>,
) {
    if let Err(detail) = result {
        errors.push(FieldError::invalid(field, &value.into(), detail));
    }
}

pub(crate) fn non_empty_or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

/// The value as Go prints its struct `T`: fields in declaration order, HTML characters
/// escaped.
pub(crate) fn go_json<T: DeserializeOwned + Serialize>(value: &Value) -> String {
    let typed = T::deserialize(value).and_then(|t| serde_json::to_string(&t));
    let text = typed.unwrap_or_else(|_| value.to_string());
    let text = text.replace('&', "\\u0026").replace('<', "\\u003c");
    text.replace('>', "\\u003e")
}
