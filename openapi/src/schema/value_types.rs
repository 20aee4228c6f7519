//! Checks that a value has the type and the format that its schema declares
//! (`kube-openapi/pkg/validation/validate/type.go`).

use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::{FieldPath, formats};
use crate::model::{SchemaNode, SchemaType};

pub(super) const QUANTITY_FORMAT_ERROR: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn is_integer(value: &Value) -> bool {
    match value {
        Value::Number(n) => {
            n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|f| f.fract() == 0.0)
        }
        _ => false,
    }
}

/// The error for a number with a fraction, or beyond the range of the integer type.
pub(super) fn not_an_integer(node: &SchemaNode, path: &FieldPath<'_>) -> FieldError {
    let format = match (&node.ty, &*node.format) {
        (SchemaType::Int32, _) => "with format int32".to_owned(),
        (_, "") => "(default format)".to_owned(),
        (_, format) => format!("with format {format}"),
    };
    let field = path.render();
    let text = format!("Checked value must be of type integer {format} in {field}");
    FieldError::invalid("<nil>", &Value::from(""), text)
}

/// Checks that the value has the declared type and format.
pub(super) fn check_type(
    node: &SchemaNode,
    value: &Value,
    path: &FieldPath<'_>,
) -> Result<(), FieldError> {
    let (fits, name) = match &node.ty {
        SchemaType::String | SchemaType::Bytes | SchemaType::Duration => {
            (value.is_string(), "string")
        }
        // Go's zero time is null.
        SchemaType::Time | SchemaType::MicroTime => {
            (value.is_string() || value.is_null(), "string")
        }
        SchemaType::Int32 | SchemaType::Int64 => (is_integer(value), "integer"),
        SchemaType::Bool => (value.is_boolean(), "boolean"),
        SchemaType::Number => (value.is_number(), "number"),
        SchemaType::Quantity => (value.is_string() || value.is_number(), "integer,string"),
        SchemaType::IntOrString => (value.is_string() || is_integer(value), "integer,string"),
        SchemaType::Any => (true, ""),
        SchemaType::Object | SchemaType::Map(_) | SchemaType::Ref(_) => {
            (value.is_object(), "object")
        }
        SchemaType::Array(_) => (value.is_array(), "array"),
    };
    if fits {
        return check_format(node, value, path);
    }
    let (name, actual) = match (declared_format(node), value) {
        // A quirk of kube-openapi (`validation/validate/type.go`) that clients rely on by now.
        (Some(_), Value::Array(_)) if matches!(node.ty, SchemaType::String) => return Ok(()),
        (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            (format, number_format(value))
        }
        _ => (name, json_type(value)),
    };
    let field = path.render();
    let text = format!("{field} in body must be of type {name}: {actual:?}");
    Err(FieldError::type_invalid(field, &Value::from(actual), text))
}

/// The format in the schema of a custom resource; None if it is unknown for the type, which
/// apiextensions-apiserver ignores (`apiserver/validation/formats.go`).
fn declared_format(node: &SchemaNode) -> Option<&str> {
    let format = &*node.format;
    let is_known = match &node.ty {
        SchemaType::String => formats::is_known(format),
        SchemaType::Int32 | SchemaType::Int64 => matches!(format, "int32" | "int64"),
        SchemaType::Number => matches!(format, "float" | "double"),
        _ => false,
    };
    is_known.then_some(format)
}

/// The format that Go's type of a decoded value has; only numbers have one.
fn number_format(value: &Value) -> &'static str {
    match value {
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        _ => "",
    }
}

fn check_format(node: &SchemaNode, value: &Value, path: &FieldPath<'_>) -> Result<(), FieldError> {
    let format = match &node.ty {
        SchemaType::Bytes => "byte",
        SchemaType::Time | SchemaType::MicroTime => "date-time",
        SchemaType::Duration => "duration",
        SchemaType::Int32 => "int32",
        SchemaType::Quantity => {
            return match Quantity::from_value(value) {
                Ok(_) => Ok(()),
                Err(_) => Err(FieldError::invalid(
                    path.render(),
                    value,
                    QUANTITY_FORMAT_ERROR,
                )),
            };
        }
        _ => &node.format,
    };
    let fits = match value {
        // What Go's decoder takes; it may be empty, unlike in a custom resource.
        Value::String(text) if matches!(node.ty, SchemaType::Bytes) => {
            formats::base64_error_offset(text).is_none()
        }
        Value::String(text) => formats::matches_format(format, text),
        Value::Number(n) if format == "int32" => {
            n.as_i64().is_none_or(|n| i32::try_from(n).is_ok())
        }
        _ => true,
    };
    if fits {
        return Ok(());
    }
    let field = path.render();
    let rendered = match value {
        Value::String(text) => text.clone(),
        _ => return Err(not_an_integer(node, path)),
    };
    let text = format!("{field} in body must be of type {format}: {rendered:?}");
    Err(FieldError::type_invalid(field, value, text))
}
