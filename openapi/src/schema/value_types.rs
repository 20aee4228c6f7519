//! Checks that a value has the type and the format that its schema declares
//! (`kube-openapi/pkg/validation/validate/type.go`).

use machinery::go_numbers::MAX_EXACT_INTEGER;
use machinery::{FieldError, Quantity};
use serde_json::{Number, Value};

use super::{FieldPath, formats};
use crate::model::{SchemaNode, SchemaType};

pub(super) const QUANTITY_FORMAT_ERROR: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether Kubernetes takes a number for an integer: 64 bits in digits, or a double that stands
/// for one integer only (`IsFloat64AJSONInteger` of go-openapi's `swag`).
fn is_integer(value: &Value) -> bool {
    match value {
        Value::Number(n) if n.is_i64() => true,
        Value::Number(n) => n.as_f64().is_some_and(is_integral_double),
        _ => false,
    }
}

fn is_integral_double(float: f64) -> bool {
    const EPSILON: f64 = 1e-9;
    let rounded = float.round();
    float.abs() <= MAX_EXACT_INTEGER
        && (float == rounded || (float - rounded).abs() < EPSILON * rounded.abs())
}

/// The error for a number with a fraction where an integer is meant, or beyond the range of its
/// format.
pub(super) fn outside_number_format(node: &SchemaNode, path: &FieldPath<'_>) -> FieldError {
    let ty = match &node.ty {
        SchemaType::Number => "number",
        _ => "integer",
    };
    let format = match (&node.ty, &*node.format) {
        (SchemaType::Int32, _) => "with format int32".to_owned(),
        (_, "") => "(default format)".to_owned(),
        (_, format) => format!("with format {format}"),
    };
    let field = path.render();
    let text = format!("Checked value must be of type {ty} {format} in {field}");
    FieldError::invalid("<nil>", &Value::from(""), text)
}

/// Checks that the value has the declared type and format.
pub(super) fn check_type(
    node: &SchemaNode,
    value: &Value,
    path: &FieldPath<'_>,
) -> Result<(), FieldError> {
    let (is_valid, name) = match &node.ty {
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
    if is_valid {
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
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        _ => "",
    }
}

/// Whether a number is an integer from `-max - 1` to `max`. Doubles that stand for one integer
/// have the form of integers here.
fn is_integer_in_range(number: &Number, max: i64) -> bool {
    number
        .as_i64()
        .is_some_and(|n| (-max - 1..=max).contains(&n))
}

/// Whether a number that is taken for no integer cannot be read as one of the declared size, either.
pub(super) fn has_no_integer_form(node: &SchemaNode, value: &Value) -> bool {
    let Some(float) = value.as_f64().filter(|_| !is_integer(value)) else {
        return false;
    };
    let digits = float.to_string();
    match node.ty {
        SchemaType::Int32 => digits.parse::<i32>().is_err(),
        SchemaType::Int64 => digits.parse::<i64>().is_err(),
        _ => false,
    }
}

/// Whether a number, by its digits, is not infinite with single precision.
fn is_finite_float(number: f64) -> bool {
    let float = number.to_string().parse::<f32>();
    float.is_ok_and(f32::is_finite)
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
    let is_valid = match value {
        // Go's decoder takes this value; it may be empty, unlike in a custom resource.
        Value::String(text) if matches!(node.ty, SchemaType::Bytes) => {
            formats::base64_error_offset(text).is_none()
        }
        Value::String(text) => formats::matches_format(format, text),
        Value::Number(n) if node.ty == SchemaType::Int32 => is_integer_in_range(n, i32::MAX.into()),
        Value::Number(n) if node.ty == SchemaType::Int64 => is_integer_in_range(n, i64::MAX),
        Value::Number(n) if node.ty == SchemaType::Number && format == "float" => {
            n.as_f64().is_none_or(is_finite_float)
        }
        _ => true,
    };
    if is_valid {
        return Ok(());
    }
    let field = path.render();
    let rendered = match value {
        Value::String(text) => text.clone(),
        _ => return Err(outside_number_format(node, path)),
    };
    let text = format!("{field} in body must be of type {format}: {rendered:?}");
    Err(FieldError::type_invalid(field, value, text))
}
