//! Quantities of resources (`k8s.io/apiserver/pkg/cel/library/quantity.go`).

use std::cmp::Ordering;

use machinery::Quantity;

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Opaque, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "string_to_quantity",
        "quantity(string) kubernetes.Quantity",
        parse,
    ),
    ("is_quantity_string", "isQuantity(string) bool", is_quantity),
    ("quantity_sign", "sign(kubernetes.Quantity) int", sign),
    ("quantity_sign", "<kubernetes.Quantity>.sign() int", sign),
    (
        "quantity_is_greater_than",
        "<kubernetes.Quantity>.isGreaterThan(kubernetes.Quantity) bool",
        is_greater_than,
    ),
    (
        "quantity_is_less_than",
        "<kubernetes.Quantity>.isLessThan(kubernetes.Quantity) bool",
        is_less_than,
    ),
    (
        "quantity_compare_to",
        "<kubernetes.Quantity>.compareTo(kubernetes.Quantity) int",
        compare_to,
    ),
    (
        "quantity_get_float",
        "<kubernetes.Quantity>.asApproximateFloat() double",
        as_approximate_float,
    ),
    (
        "quantity_get_int",
        "<kubernetes.Quantity>.asInteger() int",
        as_integer,
    ),
    (
        "quantity_is_integer",
        "<kubernetes.Quantity>.isInteger() bool",
        is_integer,
    ),
    (
        "quantity_add",
        "<kubernetes.Quantity>.add(kubernetes.Quantity) kubernetes.Quantity",
        add,
    ),
    (
        "quantity_add_int",
        "<kubernetes.Quantity>.add(int) kubernetes.Quantity",
        add,
    ),
    (
        "quantity_sub",
        "<kubernetes.Quantity>.sub(kubernetes.Quantity) kubernetes.Quantity",
        sub,
    ),
    (
        "quantity_sub_int",
        "<kubernetes.Quantity>.sub(int) kubernetes.Quantity",
        sub,
    ),
];

fn quantity(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Opaque(opaque) => match **opaque {
            Opaque::Quantity(quantity) => Ok(quantity),
            _ => Err(EvalError::NoSuchOverload),
        },
        Value::Int(units) => Ok(Quantity::from_units(*units)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn one(arguments: &[Value<'_>]) -> Result<Quantity, EvalError> {
    quantity(arguments.first().ok_or(EvalError::NoSuchOverload)?)
}

fn two(arguments: &[Value<'_>]) -> Result<(Quantity, Quantity), EvalError> {
    match arguments {
        [a, b] => Ok((quantity(a)?, quantity(b)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn parse<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let quantity = Quantity::parse(text.as_str()).map_err(|e| EvalError::new(e.to_string()))?;
    Ok(Value::opaque(Opaque::Quantity(quantity)))
}

fn is_quantity<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text.as_str()).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn order(order: Ordering) -> i64 {
    order as i64
}

fn sign<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let sign = one(arguments)?.cmp(&Quantity::ZERO);
    Ok(Value::Int(order(sign)))
}

fn is_greater_than<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    two(arguments).map(|(a, b)| Value::Bool(a > b))
}

fn is_less_than<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    two(arguments).map(|(a, b)| Value::Bool(a < b))
}

fn compare_to<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    two(arguments).map(|(a, b)| Value::Int(order(a.cmp(&b))))
}

fn as_approximate_float<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let quantity = one(arguments)?;
    let amount = if quantity.is_integer() {
        quantity.value() as f64
    } else {
        quantity.milli_value() as f64 / 1000.0
    };
    Ok(Value::Double(amount))
}

fn as_integer<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let quantity = one(arguments)?;
    let integer = quantity.is_integer().then(|| quantity.value());
    let integer = integer.and_then(|n| i64::try_from(n).ok());
    integer
        .map(Value::Int)
        .ok_or_else(|| EvalError::new("cannot convert value to integer"))
}

fn is_integer<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let quantity = one(arguments)?;
    let is_whole = quantity.is_integer() && i64::try_from(quantity.value()).is_ok();
    Ok(Value::Bool(is_whole))
}

fn add<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (a, b) = two(arguments)?;
    Ok(Value::opaque(Opaque::Quantity(a + b)))
}

fn sub<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (a, b) = two(arguments)?;
    Ok(Value::opaque(Opaque::Quantity(a - b)))
}
