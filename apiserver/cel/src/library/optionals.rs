//! Optional values (`cel-go/cel/library.go`).

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("optional_of", "optional.of(A) optional(A)", of),
    (
        "optional_ofNonZeroValue",
        "optional.ofNonZeroValue(A) optional(A)",
        of_non_zero_value,
    ),
    ("optional_none", "optional.none() optional(A)", none),
    ("optional_value", "<optional(A)>.value() A", value),
    (
        "optional_hasValue",
        "<optional(A)>.hasValue() bool",
        has_value,
    ),
    (
        "optional_unwrap",
        "optional.unwrap(list(optional(A))) list(A)",
        unwrap,
    ),
    (
        "optional_unwrapOpt",
        "<list(optional(A))>.unwrapOpt() list(A)",
        unwrap,
    ),
    (
        "optional_or_optional",
        "<optional(A)>.or(optional(A)) optional(A)",
        or,
    ),
    (
        "optional_orValue_value",
        "<optional(A)>.orValue(A) A",
        or_value,
    ),
];

fn of<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::optional(arguments.first().cloned()))
}

fn of_non_zero_value<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let value = arguments.first().filter(|v| !v.is_zero());
    Ok(Value::optional(value.cloned()))
}

fn none<'a>(_: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::optional(None))
}

fn value<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(EvalError::new("optional.none() dereference")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn has_value<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn unwrap<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::List(list)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut items = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => items.push((*value).clone()),
            Value::Optional(None) => {}
            _ => return Err(EvalError::NoSuchOverload),
        }
    }
    Ok(Value::list(items))
}

fn or<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Optional(Some(value)), _] => Ok(Value::Optional(Some(value.clone()))),
        [Value::Optional(None), other @ Value::Optional(_)] => Ok(other.clone()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn or_value<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Optional(Some(value)), _] => Ok((**value).clone()),
        [Value::Optional(None), other] => Ok(other.clone()),
        _ => Err(EvalError::NoSuchOverload),
    }
}
