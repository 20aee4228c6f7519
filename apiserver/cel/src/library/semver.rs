//! Semantic versions (`k8s.io/apiserver/pkg/cel/library/semverlib.go`).

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::semantic_version::Semver;
use crate::value::{EvaluationResult, Opaque, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "string_to_semver",
        "semver(string) kubernetes.Semver",
        parse,
    ),
    (
        "string_bool_to_semver",
        "semver(string,bool) kubernetes.Semver",
        parse,
    ),
    ("is_semver_string", "isSemver(string) bool", is_semver),
    (
        "is_semver_string_bool",
        "isSemver(string,bool) bool",
        is_semver,
    ),
    (
        "semver_is_greater_than",
        "<kubernetes.Semver>.isGreaterThan(kubernetes.Semver) bool",
        is_greater_than,
    ),
    (
        "semver_is_less_than",
        "<kubernetes.Semver>.isLessThan(kubernetes.Semver) bool",
        is_less_than,
    ),
    (
        "semver_compare_to",
        "<kubernetes.Semver>.compareTo(kubernetes.Semver) int",
        compare_to,
    ),
    ("semver_major", "<kubernetes.Semver>.major() int", major),
    ("semver_minor", "<kubernetes.Semver>.minor() int", minor),
    ("semver_patch", "<kubernetes.Semver>.patch() int", patch),
];

fn parsed(arguments: &[Value<'_>]) -> Result<Option<Semver>, EvalError> {
    match arguments {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(Semver::parse(text.as_str()))
        }
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_normalized(text.as_str())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn parse<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let version = parsed(arguments)?;
    let version = version.ok_or_else(|| EvalError::new("No Major.Minor.Patch elements found"))?;
    Ok(Value::opaque(Opaque::Semver(version)))
}

fn is_semver<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::Bool(parsed(arguments)?.is_some()))
}

fn version<'v>(value: &'v Value<'_>) -> Result<&'v Semver, EvalError> {
    match value {
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Semver(version) => Ok(version),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn compare(arguments: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match arguments {
        [a, b] => Ok(version(a)?.cmp(version(b)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_greater_than<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    compare(arguments).map(|order| Value::Bool(order.is_gt()))
}

fn is_less_than<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    compare(arguments).map(|order| Value::Bool(order.is_lt()))
}

fn compare_to<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    compare(arguments).map(|order| Value::Int(order as i64))
}

fn number<'a>(arguments: &[Value<'a>], index: usize) -> EvaluationResult<'a> {
    let version = version(arguments.first().ok_or(EvalError::NoSuchOverload)?)?;
    let number = i64::try_from(version.numbers[index]).ok();
    number.map(Value::Int).ok_or_else(EvalError::overflow)
}

fn major<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    number(arguments, 0)
}

fn minor<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    number(arguments, 1)
}

fn patch<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    number(arguments, 2)
}
