//! The JSON of values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map as JsonMap, Value as Json};

use crate::error::EvalError;
use crate::time_text;
use crate::value::{Opaque, Value};

/// The JSON of a value, which must have one.
pub(crate) fn from_value(value: &Value<'_>) -> Result<Json, EvalError> {
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => Json::from(*n),
        Value::Uint(n) => Json::from(*n),
        Value::Double(n) => Json::from(*n),
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(BASE64_STANDARD.encode(bytes)),
        Value::Timestamp(at) => Json::from(time_text::format_timestamp(*at)),
        Value::Duration(nanos) => Json::from(time_text::format_duration(*nanos)),
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
            Opaque::Format(_)
            | Opaque::Authorizer(_)
            | Opaque::GroupCheck(..)
            | Opaque::TargetCheck(..)
            | Opaque::Decision(_) => {
                let message = format!("a value of type {} has no JSON", opaque.type_name());
                return Err(EvalError::new(message));
            }
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
