//! Converts JSON to values as its declaration says
//! (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value as Json;

use crate::declarations::{Declaration, DeclaredKind, DeclaredListType};
use crate::error::EvalError;
use crate::time_text;
use crate::value::{EvaluationResult, List, Map, Text, Value};

/// The declarations of the parts of a value without a schema.
static ANY: Declaration = Declaration::ANY;

/// The value of `json`, declared as `declaration`.
pub(crate) fn to_value<'a>(json: &'a Json, declaration: &'a Declaration) -> EvaluationResult<'a> {
    if json.is_null() {
        return Ok(Value::Null);
    }
    let value = match (&declaration.kind, json) {
        (DeclaredKind::Any | DeclaredKind::IntOrString, _) => Some(undeclared(json)),
        (DeclaredKind::Bool, Json::Bool(b)) => Some(Value::Bool(*b)),
        (DeclaredKind::Int, Json::Number(number)) => {
            let to_integer = |n: f64| (n.fract() == 0.0 && n.abs() < 9.2e18).then_some(n as i64);
            let int = number.as_i64().or_else(|| to_integer(number.as_f64()?));
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
            let nanos = time_text::parse_duration(text);
            let nanos = nanos.ok_or_else(|| EvalError::new(format!("Invalid duration {text}")))?;
            Some(Value::Duration(nanos))
        }
        (DeclaredKind::Timestamp, Json::String(text)) => {
            let at = time_text::parse_timestamp_or_date(text);
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
            list_type: &DeclaredListType::Atomic,
        }),
        Json::Object(entries) => Value::Map(Map::Json {
            entries,
            value: &ANY,
        }),
    }
}
