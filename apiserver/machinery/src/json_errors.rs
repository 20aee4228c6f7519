//! Words of errors about JSON. Does no I/O.

use serde_json::Value;

/// Go's name of the type of a JSON value, as in `cannot unmarshal array into …`.
pub fn value_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
