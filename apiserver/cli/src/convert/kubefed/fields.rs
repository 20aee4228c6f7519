//! Reads fields of documents by type. A field that is absent or null has no value; a value of
//! another type is an error that names the field.

use anyhow::{bail, ensure};
use serde_json::{Map, Value};

pub(super) fn object<'a>(
    value: &'a Value,
    field: &str,
) -> anyhow::Result<Option<&'a Map<String, Value>>> {
    match value {
        Value::Null => Ok(None),
        Value::Object(object) => Ok(Some(object)),
        _ => bail!("{field}: must be an object"),
    }
}

/// A map whose values are strings, as labels and annotations are.
pub(super) fn text_map<'a>(
    value: &'a Value,
    field: &str,
) -> anyhow::Result<Option<&'a Map<String, Value>>> {
    let map = object(value, field)?;
    for (key, text) in map.into_iter().flatten() {
        ensure!(text.is_string(), "{field}[{key}]: must be a string");
    }
    Ok(map)
}

pub(super) fn list<'a>(value: &'a Value, field: &str) -> anyhow::Result<Option<&'a [Value]>> {
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => Ok(Some(items.as_slice())),
        _ => bail!("{field}: must be a list"),
    }
}

pub(super) fn text_list<'a>(value: &'a Value, field: &str) -> anyhow::Result<Option<&'a [Value]>> {
    let items = list(value, field)?;
    for (index, text) in items.unwrap_or_default().iter().enumerate() {
        ensure!(text.is_string(), "{field}[{index}]: must be a string");
    }
    Ok(items)
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> anyhow::Result<Option<&'a str>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_str())),
        _ => bail!("{field}: must be a string"),
    }
}

pub(super) fn integer(value: &Value, field: &str) -> anyhow::Result<Option<i64>> {
    let number = value.as_i64();
    ensure!(
        value.is_null() || number.is_some(),
        "{field}: must be an integer"
    );
    Ok(number)
}

/// An absent boolean is false.
pub(super) fn boolean(value: &Value, field: &str) -> anyhow::Result<bool> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(boolean) => Ok(*boolean),
        _ => bail!("{field}: must be true or false"),
    }
}
