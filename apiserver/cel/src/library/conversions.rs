//! Conversions between types (`cel-go/common/types`).

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::library::time;
use crate::meter::Meter;
use crate::time_text;
use crate::value::{EvaluationResult, Opaque, Text, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("type", "type(A) type", type_of),
    ("to_dyn", "dyn(A) dyn", identity),
    ("bool_to_bool", "bool(bool) bool", identity),
    ("string_to_bool", "bool(string) bool", to_bool),
    ("bytes_to_bytes", "bytes(bytes) bytes", identity),
    ("string_to_bytes", "bytes(string) bytes", to_bytes),
    ("double_to_double", "double(double) double", identity),
    ("int64_to_double", "double(int) double", to_double),
    ("uint64_to_double", "double(uint) double", to_double),
    ("string_to_double", "double(string) double", to_double),
    (
        "duration_to_duration",
        "duration(duration) duration",
        identity,
    ),
    (
        "string_to_duration",
        "duration(string) duration",
        to_duration,
    ),
    ("int64_to_int64", "int(int) int", identity),
    ("double_to_int64", "int(double) int", to_int),
    ("string_to_int64", "int(string) int", to_int),
    ("uint64_to_int64", "int(uint) int", to_int),
    ("timestamp_to_int64", "int(timestamp) int", to_int),
    ("duration_to_int64", "int(duration) int", to_int),
    ("uint64_to_uint64", "uint(uint) uint", identity),
    ("double_to_uint64", "uint(double) uint", to_uint),
    ("int64_to_uint64", "uint(int) uint", to_uint),
    ("string_to_uint64", "uint(string) uint", to_uint),
    ("string_to_string", "string(string) string", identity),
    ("bool_to_string", "string(bool) string", to_string),
    ("bytes_to_string", "string(bytes) string", to_string),
    ("double_to_string", "string(double) string", to_string),
    ("duration_to_string", "string(duration) string", to_string),
    ("int64_to_string", "string(int) string", to_string),
    ("timestamp_to_string", "string(timestamp) string", to_string),
    ("uint64_to_string", "string(uint) string", to_string),
    ("ip_to_string", "string(net.IP) string", to_string),
    ("cidr_to_string", "string(net.CIDR) string", to_string),
    (
        "timestamp_to_timestamp",
        "timestamp(timestamp) timestamp",
        identity,
    ),
    (
        "string_to_timestamp",
        "timestamp(string) timestamp",
        to_timestamp,
    ),
    (
        "int64_to_timestamp",
        "timestamp(int) timestamp",
        to_timestamp,
    ),
];

fn argument<'v, 'a>(arguments: &'v [Value<'a>]) -> EvaluationResult<'a, &'v Value<'a>> {
    arguments.first().ok_or(EvalError::NoSuchOverload)
}

fn identity<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    argument(arguments).cloned()
}

fn type_of<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::Type(argument(arguments)?.type_name()))
}

fn to_bool<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let Value::String(text) = argument(arguments)? else {
        return Err(EvalError::NoSuchOverload);
    };
    match text.as_str() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
        other => Err(unconvertible("string", "bool", other)),
    }
}

fn unconvertible(from: &str, to: &str, value: &str) -> EvalError {
    EvalError::new(format!(
        "type conversion error from '{from}' to '{to}': {value:?}"
    ))
}

fn to_bytes<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match argument(arguments)? {
        Value::String(text) => Ok(Value::Bytes(text.as_str().as_bytes().into())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_double<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match argument(arguments)? {
        Value::Int(n) => Ok(Value::Double(*n as f64)),
        Value::Uint(n) => Ok(Value::Double(*n as f64)),
        Value::String(text) => {
            let text = text.as_str();
            let number = text.parse().map(Value::Double);
            number.map_err(|_| unconvertible("string", "double", text))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// The integer below a double towards zero, if it is in the range of the integers.
fn truncate(n: f64) -> Option<i128> {
    (n.is_finite() && n.abs() < 1.9e19).then_some(n.trunc() as i128)
}

fn to_int<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let int = match argument(arguments)? {
        Value::Double(n) => {
            // The bounds themselves are not exact as doubles.
            let is_in_range = *n > i64::MIN as f64 && *n < i64::MAX as f64;
            let truncated = truncate(*n).filter(|_| is_in_range);
            truncated.and_then(|n| i64::try_from(n).ok())
        }
        Value::Uint(n) => i64::try_from(*n).ok(),
        Value::Timestamp(at) => Some(at.as_second()),
        Value::Duration(nanos) => Some(*nanos),
        Value::String(text) => {
            let text = text.as_str();
            let number = text.parse().map(Value::Int);
            return number.map_err(|_| unconvertible("string", "int", text));
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    int.map(Value::Int).ok_or_else(EvalError::overflow)
}

fn to_uint<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let uint = match argument(arguments)? {
        Value::Double(n) => {
            let is_in_range = *n < u64::MAX as f64;
            let truncated = truncate(*n).filter(|_| is_in_range);
            truncated.and_then(|n| u64::try_from(n).ok())
        }
        Value::Int(n) => u64::try_from(*n).ok(),
        Value::String(text) => {
            let text = text.as_str();
            let number = text.parse().map(Value::Uint);
            return number.map_err(|_| unconvertible("string", "uint", text));
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    let overflow = || EvalError::new("unsigned integer overflow");
    uint.map(Value::Uint).ok_or_else(overflow)
}

fn to_string<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let text = match argument(arguments)? {
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Double(n) => format_double(*n),
        Value::Timestamp(at) => time_text::format_timestamp(*at),
        Value::Duration(nanos) => time_text::format_seconds(*nanos),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                let message = "invalid UTF-8 in bytes, cannot convert to string";
                return Err(EvalError::new(message));
            }
        },
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Ip(address) => address.to_string(),
            Opaque::Cidr(address, bits) => format!("{address}/{bits}"),
            _ => return Err(EvalError::NoSuchOverload),
        },
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::String(Text::Owned(text.into())))
}

/// A double as Go's `%g` writes it.
pub(super) fn format_double(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{n:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return n.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn to_duration<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match argument(arguments)? {
        Value::String(text) => {
            let text = text.as_str();
            let nanos = time_text::parse_duration(text);
            let nanos = nanos.ok_or_else(|| unconvertible("string", "duration", text))?;
            Ok(Value::Duration(nanos))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_timestamp<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match argument(arguments)? {
        Value::String(text) => {
            let text = text.as_str();
            let at = time_text::parse_timestamp(text);
            let at = at.ok_or_else(|| unconvertible("string", "timestamp", text))?;
            Ok(Value::Timestamp(at))
        }
        Value::Int(seconds) => time::from_seconds(*seconds).map(Value::Timestamp),
        _ => Err(EvalError::NoSuchOverload),
    }
}
