//! Arithmetic, with an error on every overflow, and sums of texts, times and lists.

use std::rc::Rc;

use crate::declarations::DeclaredListType;
use crate::equality::{contains, have_equal_keys};
use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::library::time;
use crate::meter::Meter;
use crate::value::{EvaluationResult, List, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("add_int64", "_+_(int,int) int", add),
    ("add_uint64", "_+_(uint,uint) uint", add),
    ("add_double", "_+_(double,double) double", add),
    ("add_string", "_+_(string,string) string", add),
    ("add_bytes", "_+_(bytes,bytes) bytes", add),
    ("add_list", "_+_(list(A),list(A)) list(A)", add_lists),
    (
        "add_duration_duration",
        "_+_(duration,duration) duration",
        add,
    ),
    (
        "add_duration_timestamp",
        "_+_(duration,timestamp) timestamp",
        add,
    ),
    (
        "add_timestamp_duration",
        "_+_(timestamp,duration) timestamp",
        add,
    ),
    ("subtract_int64", "_-_(int,int) int", subtract),
    ("subtract_uint64", "_-_(uint,uint) uint", subtract),
    ("subtract_double", "_-_(double,double) double", subtract),
    (
        "subtract_duration_duration",
        "_-_(duration,duration) duration",
        subtract,
    ),
    (
        "subtract_timestamp_duration",
        "_-_(timestamp,duration) timestamp",
        subtract,
    ),
    (
        "subtract_timestamp_timestamp",
        "_-_(timestamp,timestamp) duration",
        subtract,
    ),
    ("multiply_int64", "_*_(int,int) int", multiply),
    ("multiply_uint64", "_*_(uint,uint) uint", multiply),
    ("multiply_double", "_*_(double,double) double", multiply),
    ("divide_int64", "_/_(int,int) int", divide),
    ("divide_uint64", "_/_(uint,uint) uint", divide),
    ("divide_double", "_/_(double,double) double", divide),
    ("modulo_int64", "_%_(int,int) int", modulo),
    ("modulo_uint64", "_%_(uint,uint) uint", modulo),
    ("negate_int64", "-_(int) int", negate),
    ("negate_double", "-_(double) double", negate),
];

fn checked<'a, T>(result: Option<T>, wrap: fn(T) -> Value<'a>) -> EvaluationResult<'a> {
    result.map(wrap).ok_or_else(EvalError::overflow)
}

fn unsigned<'a>(result: Option<u64>) -> EvaluationResult<'a> {
    let overflow = || EvalError::new("unsigned integer overflow");
    result.map(Value::Uint).ok_or_else(overflow)
}

fn duration<'a>(nanos: Option<i64>) -> EvaluationResult<'a> {
    let overflow = || EvalError::new("duration overflow");
    nanos.map(Value::Duration).ok_or_else(overflow)
}

pub(super) fn add<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(a), Value::Int(b)] => checked(a.checked_add(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_add(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => {
            Ok(Value::string([a.as_str(), b.as_str()].concat()))
        }
        [Value::Bytes(a), Value::Bytes(b)] => Ok(Value::Bytes([&**a, &**b].concat().into())),
        [Value::Duration(a), Value::Duration(b)] => duration(a.checked_add(*b)),
        [Value::Timestamp(at), Value::Duration(by)]
        | [Value::Duration(by), Value::Timestamp(at)] => {
            time::shift(*at, *by).map(Value::Timestamp)
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Lists of the object keep their list type: an element that exists is not added to a set, and an
/// element replaces the one with equal keys in a map.
fn add_lists<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::List(a), Value::List(b)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut items = a.to_vec()?;
    let list_type = a.list_type().filter(|t| **t != DeclaredListType::Atomic);
    let Some(list_type) = list_type else {
        for item in b.iter() {
            items.push(item?);
        }
        return Ok(Value::list(items));
    };
    for item in b.iter() {
        let item = item?;
        match list_type {
            DeclaredListType::Set if contains(&items, &item, meter)? => {}
            DeclaredListType::Map(keys) => {
                let mut index = items.len();
                for (i, other) in items.iter().enumerate() {
                    if have_equal_keys(other, &item, keys, meter)? {
                        index = i;
                        break;
                    }
                }
                match items.get_mut(index) {
                    Some(slot) => *slot = item,
                    None => items.push(item),
                }
            }
            _ => items.push(item),
        }
    }
    Ok(Value::List(List::Typed(Rc::new(items), list_type)))
}

fn subtract<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(a), Value::Int(b)] => checked(a.checked_sub(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_sub(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => duration(a.checked_sub(*b)),
        [Value::Timestamp(at), Value::Duration(span)] => {
            let span = span
                .checked_neg()
                .ok_or_else(|| EvalError::new("duration overflow"))?;
            time::shift(*at, span).map(Value::Timestamp)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            duration(i64::try_from(nanos).ok())
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn multiply<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(a), Value::Int(b)] => checked(a.checked_mul(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_mul(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn divide<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::new("division by zero"))
        }
        [Value::Int(a), Value::Int(b)] => checked(a.checked_div(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_div(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn modulo<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::new("modulus by zero"))
        }
        [Value::Int(a), Value::Int(b)] => checked(a.checked_rem(*b), Value::Int),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_rem(*b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn negate<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(n)] => checked(n.checked_neg(), Value::Int),
        [Value::Double(n)] => Ok(Value::Double(-n)),
        _ => Err(EvalError::NoSuchOverload),
    }
}
