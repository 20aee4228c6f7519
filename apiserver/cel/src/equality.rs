//! Compares values for equality. Lists with the list type `set` are equal in any order; lists with
//! the list type `map` are equal if the elements with equal keys are
//! (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`).

use std::cmp::Ordering;

use crate::declarations::DeclaredListType;
use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::{List, Map, Value, compare_numbers};

type EqualityResult = Result<bool, EvalError>;

pub(crate) fn equal(a: &Value<'_>, b: &Value<'_>, meter: &mut Meter<'_>) -> EqualityResult {
    meter.compare_element()?;
    if let Some(order) = compare_numbers(a, b) {
        return Ok(order == Some(Ordering::Equal));
    }
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => a.as_str() == b.as_str(),
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Opaque(a), Value::Opaque(b)) => a == b,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => return equal(a, b, meter),
        (Value::List(a), Value::List(b)) => return equal_lists(a, b, meter),
        (Value::Map(a), Value::Map(b)) => return equal_maps(a, b, meter),
        _ => false,
    })
}

fn equal_lists(a: &List<'_>, b: &List<'_>, meter: &mut Meter<'_>) -> EqualityResult {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.list_type() {
        Some(DeclaredListType::Set) => equal_sets(a, b, meter),
        Some(DeclaredListType::Map(keys)) => equal_map_lists(a, b, keys, meter),
        _ => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a?, &b?, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn equal_sets(a: &List<'_>, b: &List<'_>, meter: &mut Meter<'_>) -> EqualityResult {
    let b = b.to_vec()?;
    for item in a.iter() {
        if !contains(&b, &item?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn contains(
    items: &[Value<'_>],
    item: &Value<'_>,
    meter: &mut Meter<'_>,
) -> EqualityResult {
    for other in items {
        if equal(other, item, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal_map_lists(
    a: &List<'_>,
    b: &List<'_>,
    keys: &[String],
    meter: &mut Meter<'_>,
) -> EqualityResult {
    let b = b.to_vec()?;
    for item in a.iter() {
        let item = item?;
        let mut has_equal = false;
        for other in &b {
            if have_equal_keys(&item, other, keys, meter)? {
                has_equal = equal(&item, other, meter)?;
                break;
            }
        }
        if !has_equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two elements of a list with the type `map` have the same keys.
pub(crate) fn have_equal_keys(
    a: &Value<'_>,
    b: &Value<'_>,
    keys: &[String],
    meter: &mut Meter<'_>,
) -> EqualityResult {
    let (Value::Map(a), Value::Map(b)) = (a, b) else {
        return Ok(false);
    };
    for key in keys {
        let name = crate::escaping::escape(key).unwrap_or_default();
        let are_equal = match (a.field(&name), b.field(&name)) {
            (Some(a), Some(b)) => equal(&a?, &b?, meter)?,
            (None, None) => true,
            _ => false,
        };
        if !are_equal {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(a: &Map<'_>, b: &Map<'_>, meter: &mut Meter<'_>) -> EqualityResult {
    if a.type_name() != b.type_name() {
        return Ok(false);
    }
    if a.len() != b.len() {
        return Ok(false);
    }
    for key in a.keys() {
        let Value::String(name) = &key else {
            // Only maps that an expression made have other keys.
            let (Some(a), Some(b)) = (get(a, &key), get(b, &key)) else {
                return Ok(false);
            };
            if !equal(&a?, &b?, meter)? {
                return Ok(false);
            }
            continue;
        };
        let (Some(a), Some(b)) = (a.field(name.as_str()), b.field(name.as_str())) else {
            return Ok(false);
        };
        if !equal(&a?, &b?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn get<'m>(map: &Map<'m>, key: &Value<'_>) -> Option<Result<Value<'m>, EvalError>> {
    match key {
        Value::Int(n) => map.get(&Value::Int(*n)),
        Value::Uint(n) => map.get(&Value::Uint(*n)),
        Value::Bool(b) => map.get(&Value::Bool(*b)),
        _ => None,
    }
}
