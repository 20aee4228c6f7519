//! Regular expressions: `matches`, `find` and `findAll`
//! (`k8s.io/apiserver/pkg/cel/library/regex.go`).

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("matches", "matches(string,string) bool", matches),
    ("matches_string", "<string>.matches(string) bool", matches),
    ("string_find_string", "<string>.find(string) string", find),
    (
        "string_find_all_string",
        "<string>.findAll(string) list(string)",
        find_all,
    ),
    (
        "string_find_all_string_int",
        "<string>.findAll(string,int) list(string)",
        find_all,
    ),
];

fn matches<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            let regex = meter.regex(pattern.as_str())?;
            Ok(Value::Bool(regex.is_match(text.as_str())))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn find<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::String(text), Value::String(pattern)] => {
            let regex = meter.regex(pattern.as_str())?;
            let text = text.as_str();
            let range = regex.find(text);
            Ok(Value::string(range.map_or("", |range| &text[range])))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn find_all<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (text, pattern, count) = match arguments {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [
            Value::String(text),
            Value::String(pattern),
            Value::Int(count),
        ] => (text, pattern, *count),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let regex = meter.regex(pattern.as_str())?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let text = text.as_str();
    let ranges = regex.find_all(text).take(count);
    Ok(Value::list(
        ranges.map(|range| Value::string(&text[range])).collect(),
    ))
}
