//! Lists as sets (`cel-go/ext/sets.go`).

use crate::equality::contains;
use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "list_sets_contains_list",
        "sets.contains(list(A),list(A)) bool",
        sets_contain,
    ),
    (
        "list_sets_equivalent_list",
        "sets.equivalent(list(A),list(A)) bool",
        equivalent,
    ),
    (
        "list_sets_intersects_list",
        "sets.intersects(list(A),list(A)) bool",
        intersects,
    ),
];

type SetElements<'a> = Vec<Value<'a>>;

fn both<'a>(arguments: &[Value<'a>]) -> EvaluationResult<'a, (SetElements<'a>, SetElements<'a>)> {
    match arguments {
        [Value::List(a), Value::List(b)] => Ok((a.to_vec()?, b.to_vec()?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn contains_all(
    items: &[Value<'_>],
    required: &[Value<'_>],
    meter: &mut Meter<'_>,
) -> Result<bool, EvalError> {
    for required_item in required {
        if !contains(items, required_item, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sets_contain<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (a, b) = both(arguments)?;
    contains_all(&a, &b, meter).map(Value::Bool)
}

fn equivalent<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (a, b) = both(arguments)?;
    let equivalent = contains_all(&a, &b, meter)? && contains_all(&b, &a, meter)?;
    Ok(Value::Bool(equivalent))
}

fn intersects<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (a, b) = both(arguments)?;
    for other in &b {
        if contains(&a, other, meter)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
