//! Equality, order, and logical negation.

use std::cmp::Ordering;

use crate::equality::equal;
use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("equals", "_==_(A,A) bool", equals),
    ("not_equals", "_!=_(A,A) bool", not_equals),
    ("logical_not", "!_(bool) bool", not),
    ("less_bool", "_<_(bool,bool) bool", less),
    ("less_int64", "_<_(int,int) bool", less),
    ("less_int64_double", "_<_(int,double) bool", less),
    ("less_int64_uint64", "_<_(int,uint) bool", less),
    ("less_uint64", "_<_(uint,uint) bool", less),
    ("less_uint64_double", "_<_(uint,double) bool", less),
    ("less_uint64_int64", "_<_(uint,int) bool", less),
    ("less_double", "_<_(double,double) bool", less),
    ("less_double_int64", "_<_(double,int) bool", less),
    ("less_double_uint64", "_<_(double,uint) bool", less),
    ("less_string", "_<_(string,string) bool", less),
    ("less_bytes", "_<_(bytes,bytes) bool", less),
    ("less_timestamp", "_<_(timestamp,timestamp) bool", less),
    ("less_duration", "_<_(duration,duration) bool", less),
    ("less_equals_bool", "_<=_(bool,bool) bool", less_or_equal),
    ("less_equals_int64", "_<=_(int,int) bool", less_or_equal),
    (
        "less_equals_int64_double",
        "_<=_(int,double) bool",
        less_or_equal,
    ),
    (
        "less_equals_int64_uint64",
        "_<=_(int,uint) bool",
        less_or_equal,
    ),
    ("less_equals_uint64", "_<=_(uint,uint) bool", less_or_equal),
    (
        "less_equals_uint64_double",
        "_<=_(uint,double) bool",
        less_or_equal,
    ),
    (
        "less_equals_uint64_int64",
        "_<=_(uint,int) bool",
        less_or_equal,
    ),
    (
        "less_equals_double",
        "_<=_(double,double) bool",
        less_or_equal,
    ),
    (
        "less_equals_double_int64",
        "_<=_(double,int) bool",
        less_or_equal,
    ),
    (
        "less_equals_double_uint64",
        "_<=_(double,uint) bool",
        less_or_equal,
    ),
    (
        "less_equals_string",
        "_<=_(string,string) bool",
        less_or_equal,
    ),
    ("less_equals_bytes", "_<=_(bytes,bytes) bool", less_or_equal),
    (
        "less_equals_timestamp",
        "_<=_(timestamp,timestamp) bool",
        less_or_equal,
    ),
    (
        "less_equals_duration",
        "_<=_(duration,duration) bool",
        less_or_equal,
    ),
    ("greater_bool", "_>_(bool,bool) bool", greater),
    ("greater_int64", "_>_(int,int) bool", greater),
    ("greater_int64_double", "_>_(int,double) bool", greater),
    ("greater_int64_uint64", "_>_(int,uint) bool", greater),
    ("greater_uint64", "_>_(uint,uint) bool", greater),
    ("greater_uint64_double", "_>_(uint,double) bool", greater),
    ("greater_uint64_int64", "_>_(uint,int) bool", greater),
    ("greater_double", "_>_(double,double) bool", greater),
    ("greater_double_int64", "_>_(double,int) bool", greater),
    ("greater_double_uint64", "_>_(double,uint) bool", greater),
    ("greater_string", "_>_(string,string) bool", greater),
    ("greater_bytes", "_>_(bytes,bytes) bool", greater),
    (
        "greater_timestamp",
        "_>_(timestamp,timestamp) bool",
        greater,
    ),
    ("greater_duration", "_>_(duration,duration) bool", greater),
    (
        "greater_equals_bool",
        "_>=_(bool,bool) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_int64",
        "_>=_(int,int) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_int64_double",
        "_>=_(int,double) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_int64_uint64",
        "_>=_(int,uint) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_uint64",
        "_>=_(uint,uint) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_uint64_double",
        "_>=_(uint,double) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_uint64_int64",
        "_>=_(uint,int) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_double",
        "_>=_(double,double) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_double_int64",
        "_>=_(double,int) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_double_uint64",
        "_>=_(double,uint) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_string",
        "_>=_(string,string) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_bytes",
        "_>=_(bytes,bytes) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_timestamp",
        "_>=_(timestamp,timestamp) bool",
        greater_or_equal,
    ),
    (
        "greater_equals_duration",
        "_>=_(duration,duration) bool",
        greater_or_equal,
    ),
];

fn equals<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [a, b] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    equal(a, b, meter).map(Value::Bool)
}

fn not_equals<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [a, b] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    equal(a, b, meter).map(|equal| Value::Bool(!equal))
}

fn not<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Bool(b)] => Ok(Value::Bool(!b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn order<'a>(arguments: &[Value<'a>], holds: fn(Ordering) -> bool) -> EvaluationResult<'a> {
    let [a, b] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    a.compare(b).map(|order| Value::Bool(holds(order)))
}

fn less<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    order(arguments, Ordering::is_lt)
}

fn less_or_equal<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    order(arguments, Ordering::is_le)
}

fn greater<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    order(arguments, Ordering::is_gt)
}

fn greater_or_equal<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    order(arguments, Ordering::is_ge)
}
