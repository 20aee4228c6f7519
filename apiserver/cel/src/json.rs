//! Converts JSON to values as its declaration says, and values to JSON
//! (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map as JsonMap, Value as Json};

use crate::declarations::{Declaration, DeclaredKind, ListType};
use crate::error::EvalError;
use crate::library::time;
use crate::value::{List, Map, Opaque, Result, Text, Value};

/// What is declared of the parts of a value without a schema.
static ANY: Declaration = Declaration::ANY;

/// The value of `json`, declared as `declaration`.
pub(crate) fn to_value<'a>(json: &'a Json, declaration: &'a Declaration) -> Result<'a> {
    if json.is_null() {
        return Ok(Value::Null);
    }
    let value = match (&declaration.kind, json) {
        (DeclaredKind::Any | DeclaredKind::IntOrString, _) => Some(undeclared(json)),
        (DeclaredKind::Bool, Json::Bool(b)) => Some(Value::Bool(*b)),
        (DeclaredKind::Int, Json::Number(number)) => {
            let whole = |n: f64| (n.fract() == 0.0 && n.abs() < 9.2e18).then_some(n as i64);
            let int = number.as_i64().or_else(|| whole(number.as_f64()?));
            int.map(Value::Int)
        }
        (DeclaredKind::Double, Json::Number(number)) => number.as_f64().map(Value::Double),
        (DeclaredKind::String, Json::String(text)) => Some(Value::String(Text::Borrowed(text))),
        (DeclaredKind::Bytes, Json::String(text)) => {
            let decoded = BASE64_STANDARD.decode(text);
            let decoded = decoded.map_err(|e| EvalError::new(format!("invalid bytes: {e}")))?;
            Some(Value::Bytes(decoded.into()))
        }
        (DeclaredKind::Duration, Json::String(text)) => {
            let nanos = time::parse_duration(text);
            let nanos = nanos.ok_or_else(|| EvalError::new(format!("Invalid duration {text}")))?;
            Some(Value::Duration(nanos))
        }
        (DeclaredKind::Timestamp, Json::String(text)) => {
            let at = time::parse_timestamp_or_date(text);
            let at = at.ok_or_else(|| EvalError::new(format!("Invalid date-time {text}")))?;
            Some(Value::Timestamp(at))
        }
        (DeclaredKind::List { element, list_type }, Json::Array(items)) => {
            Some(Value::List(List::Json {
                items,
                element,
                list_type,
            }))
        }
        (DeclaredKind::Map(value), Json::Object(entries)) => {
            Some(Value::Map(Map::Json { entries, value }))
        }
        (DeclaredKind::Object(object), Json::Object(entries)) => {
            Some(Value::Map(Map::Object { entries, object }))
        }
        _ => None,
    };
    value.ok_or_else(|| EvalError::new("invalid data, the value does not have the declared type"))
}

fn undeclared(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(number) => match number.as_i64() {
            Some(n) => Value::Int(n),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Text::Borrowed(text)),
        Json::Array(items) => Value::List(List::Json {
            items,
            element: &ANY,
            list_type: &ListType::Atomic,
        }),
        Json::Object(entries) => Value::Map(Map::Json {
            entries,
            value: &ANY,
        }),
    }
}

/// The JSON of a value, which must have one.
pub(crate) fn from_value(value: &Value<'_>) -> std::result::Result<Json, EvalError> {
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => Json::from(*n),
        Value::Uint(n) => Json::from(*n),
        Value::Double(n) => Json::from(*n),
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(BASE64_STANDARD.encode(bytes)),
        Value::Timestamp(at) => Json::from(time::format_timestamp(*at)),
        Value::Duration(nanos) => Json::from(time::format_duration(*nanos)),
        Value::Type(name) => Json::from(*name),
        Value::Optional(Some(value)) => from_value(value)?,
        Value::List(list) => {
            let mut items = Vec::with_capacity(list.len());
            for item in list.iter() {
                items.push(from_value(&item?)?);
            }
            Json::Array(items)
        }
        Value::Map(map) => {
            let mut object = JsonMap::new();
            for (key, value) in map.entries()? {
                let Value::String(key) = key else {
                    return Err(EvalError::new("keys of JSON objects are strings"));
                };
                object.insert(key.as_str().to_owned(), from_value(&value)?);
            }
            Json::Object(object)
        }
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Quantity(quantity) => Json::from(quantity.to_string()),
            Opaque::Ip(address) => Json::from(address.to_string()),
            Opaque::Cidr(address, bits) => Json::from(format!("{address}/{bits}")),
            Opaque::Url(url) => Json::from(url.text()),
            Opaque::Semver(version) => Json::from(version.to_string()),
            Opaque::Format(_) => return Err(EvalError::new("a format has no JSON")),
        },
    })
}

/// The value in an error message.
pub(crate) fn describe(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => text.as_str().to_owned(),
        other => from_value(other).map_or_else(|_| other.type_name().to_owned(), |j| j.to_string()),
    }
}
