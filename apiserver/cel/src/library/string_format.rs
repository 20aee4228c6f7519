//! `format`: `'%s has %d'.format([name, count])` (`cel-go/ext/formatting.go`).

use std::fmt::Write;

use crate::error::EvalError;
use crate::library::conversions::format_double;
use crate::meter::Meter;
use crate::time_text;
use crate::value::{EvaluationResult, Value};

/// The precision of `%e` and `%f` without one.
const DEFAULT_PRECISION: usize = 6;
/// The largest precision that may be requested.
const MAX_PRECISION: usize = 1000;

pub(super) fn format<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::String(pattern), Value::List(values)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut out = String::new();
    let mut next = 0;
    let mut chars = pattern.as_str().chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut precision = None;
        if chars.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse().ok().filter(|p| *p <= MAX_PRECISION);
            if precision.is_none() {
                return Err(EvalError::new("invalid precision in format string"));
            }
        }
        let Some(verb) = chars.next() else {
            return Err(EvalError::new("unexpected end of string"));
        };
        let Some(value) = values.get(next) else {
            return Err(EvalError::new(format!("index {next} out of range")));
        };
        next += 1;
        let before = out.len();
        push_formatted(&mut out, verb, precision, &value?)?;
        meter.charge((out.len() - before) as u64 / 10)?;
    }
    Ok(Value::string(out))
}

fn push_formatted(
    out: &mut String,
    verb: char,
    precision: Option<usize>,
    value: &Value<'_>,
) -> Result<(), EvalError> {
    let type_error = |requirement: &str| {
        let type_name = value.type_name();
        EvalError::new(format!(
            "error during formatting: {requirement}, was given {type_name}"
        ))
    };
    match verb {
        's' => push_text(out, value, 0)?,
        'd' => match value {
            Value::Int(n) => out.push_str(&n.to_string()),
            Value::Uint(n) => out.push_str(&n.to_string()),
            Value::Double(n) if !n.is_finite() => out.push_str(non_finite(*n)),
            _ => return Err(type_error("decimal clause can only be used on integers")),
        },
        'f' | 'e' => {
            let number = match value {
                Value::Double(n) => *n,
                Value::Int(n) => *n as f64,
                Value::Uint(n) => *n as f64,
                _ => return Err(type_error("fixed-point clause can only be used on doubles")),
            };
            push_double(out, number, verb, precision.unwrap_or(DEFAULT_PRECISION));
        }
        'b' | 'o' | 'x' | 'X' => push_radix(out, verb, value).ok_or_else(|| {
            type_error("only integers, byte buffers, and strings can be formatted in this base")
        })?,
        other => {
            let message = format!(
                "could not parse formatting clause: unrecognized formatting clause \"{other}\""
            );
            return Err(EvalError::new(message));
        }
    }
    Ok(())
}

fn non_finite(n: f64) -> &'static str {
    if n.is_nan() {
        "NaN"
    } else if n > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn push_double(out: &mut String, n: f64, verb: char, precision: usize) {
    if !n.is_finite() {
        out.push_str(non_finite(n));
        return;
    }
    if verb == 'f' {
        // Writing to a String does not fail.
        let _ = write!(out, "{n:.precision$}");
        return;
    }
    let text = format!("{n:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
}

/// Appends an integer, a Boolean or bytes in base 2, 8 or 16; `None` if it is none of them.
fn push_radix(out: &mut String, verb: char, value: &Value<'_>) -> Option<()> {
    let (negative, magnitude) = match value {
        Value::Int(n) => (*n < 0, n.unsigned_abs()),
        Value::Uint(n) => (false, *n),
        Value::Bool(b) if verb == 'b' => (false, u64::from(*b)),
        Value::String(text) if matches!(verb, 'x' | 'X') => {
            push_hex(out, text.as_str().as_bytes(), verb);
            return Some(());
        }
        Value::Bytes(bytes) if matches!(verb, 'x' | 'X') => {
            push_hex(out, bytes, verb);
            return Some(());
        }
        _ => return None,
    };
    if negative {
        out.push('-');
    }
    let _ = match verb {
        'b' => write!(out, "{magnitude:b}"),
        'o' => write!(out, "{magnitude:o}"),
        'x' => write!(out, "{magnitude:x}"),
        _ => write!(out, "{magnitude:X}"),
    };
    Some(())
}

fn push_hex(out: &mut String, bytes: &[u8], verb: char) {
    for byte in bytes {
        let _ = if verb == 'x' {
            write!(out, "{byte:02x}")
        } else {
            write!(out, "{byte:02X}")
        };
    }
}

/// Appends a value as `%s` does. Strings within lists and maps are not quoted.
fn push_text(out: &mut String, value: &Value<'_>, depth: usize) -> Result<(), EvalError> {
    if depth > machinery::json::MAX_DEPTH {
        return Err(EvalError::new("value is nested too deeply"));
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Uint(n) => out.push_str(&n.to_string()),
        Value::Double(n) if n.is_finite() => out.push_str(&format_double(*n)),
        Value::Double(n) => out.push_str(non_finite(*n)),
        Value::String(text) => out.push_str(text.as_str()),
        Value::Bytes(bytes) => out.push_str(&String::from_utf8_lossy(bytes)),
        Value::Timestamp(at) => out.push_str(&time_text::format_timestamp(*at)),
        Value::Duration(nanos) => out.push_str(&time_text::format_seconds(*nanos)),
        Value::Type(name) => out.push_str(name),
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                push_text(out, &item?, depth + 1)?;
            }
            out.push(']');
        }
        Value::Map(map) => push_map(out, &map.entries()?, depth)?,
        Value::Optional(_) | Value::Opaque(_) => {
            let type_name = value.type_name();
            let message = format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {type_name}"
            );
            return Err(EvalError::new(message));
        }
    }
    Ok(())
}

fn push_map(
    out: &mut String,
    entries: &[(Value<'_>, Value<'_>)],
    depth: usize,
) -> Result<(), EvalError> {
    let mut texts = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let (mut key_text, mut value_text) = (String::new(), String::new());
        push_text(&mut key_text, key, depth + 1)?;
        push_text(&mut value_text, value, depth + 1)?;
        texts.push((key_text, value_text));
    }
    texts.sort();
    out.push('{');
    for (i, (key, value)) in texts.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        let _ = write!(out, "{key}: {value}");
    }
    out.push('}');
    Ok(())
}
