//! Kubernetes' functions on lists, and cel-go's list extension
//! (`k8s.io/apiserver/pkg/cel/library/lists.go`, `cel-go/ext/lists.go`).

use std::cmp::Ordering;

use crate::equality::{contains, equal};
use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::library::numbers::add;
use crate::meter::Meter;
use crate::value::{EvaluationResult, List, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "list_int_is_sorted_bool",
        "<list(int)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_uint_is_sorted_bool",
        "<list(uint)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_double_is_sorted_bool",
        "<list(double)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_bool_is_sorted_bool",
        "<list(bool)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_duration_is_sorted_bool",
        "<list(duration)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_timestamp_is_sorted_bool",
        "<list(timestamp)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_string_is_sorted_bool",
        "<list(string)>.isSorted() bool",
        is_sorted,
    ),
    (
        "list_bytes_is_sorted_bool",
        "<list(bytes)>.isSorted() bool",
        is_sorted,
    ),
    ("list_int_sum_int", "<list(int)>.sum() int", sum_int),
    ("list_uint_sum_uint", "<list(uint)>.sum() uint", sum_uint),
    (
        "list_double_sum_double",
        "<list(double)>.sum() double",
        sum_double,
    ),
    (
        "list_duration_sum_duration",
        "<list(duration)>.sum() duration",
        sum_duration,
    ),
    ("list_int_max_int", "<list(int)>.max() int", max),
    ("list_uint_max_uint", "<list(uint)>.max() uint", max),
    ("list_double_max_double", "<list(double)>.max() double", max),
    ("list_bool_max_bool", "<list(bool)>.max() bool", max),
    (
        "list_duration_max_duration",
        "<list(duration)>.max() duration",
        max,
    ),
    (
        "list_timestamp_max_timestamp",
        "<list(timestamp)>.max() timestamp",
        max,
    ),
    ("list_string_max_string", "<list(string)>.max() string", max),
    ("list_bytes_max_bytes", "<list(bytes)>.max() bytes", max),
    ("list_int_min_int", "<list(int)>.min() int", min),
    ("list_uint_min_uint", "<list(uint)>.min() uint", min),
    ("list_double_min_double", "<list(double)>.min() double", min),
    ("list_bool_min_bool", "<list(bool)>.min() bool", min),
    (
        "list_duration_min_duration",
        "<list(duration)>.min() duration",
        min,
    ),
    (
        "list_timestamp_min_timestamp",
        "<list(timestamp)>.min() timestamp",
        min,
    ),
    ("list_string_min_string", "<list(string)>.min() string", min),
    ("list_bytes_min_bytes", "<list(bytes)>.min() bytes", min),
    ("list_int_sort", "<list(int)>.sort() list(int)", sort),
    (
        "list_int_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(int)) list(A)",
        sort_by_keys,
    ),
    ("list_uint_sort", "<list(uint)>.sort() list(uint)", sort),
    (
        "list_uint_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(uint)) list(A)",
        sort_by_keys,
    ),
    (
        "list_double_sort",
        "<list(double)>.sort() list(double)",
        sort,
    ),
    (
        "list_double_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(double)) list(A)",
        sort_by_keys,
    ),
    ("list_bool_sort", "<list(bool)>.sort() list(bool)", sort),
    (
        "list_bool_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(bool)) list(A)",
        sort_by_keys,
    ),
    (
        "list_duration_sort",
        "<list(duration)>.sort() list(duration)",
        sort,
    ),
    (
        "list_duration_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(duration)) list(A)",
        sort_by_keys,
    ),
    (
        "list_timestamp_sort",
        "<list(timestamp)>.sort() list(timestamp)",
        sort,
    ),
    (
        "list_timestamp_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(timestamp)) list(A)",
        sort_by_keys,
    ),
    (
        "list_string_sort",
        "<list(string)>.sort() list(string)",
        sort,
    ),
    (
        "list_string_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(string)) list(A)",
        sort_by_keys,
    ),
    ("list_bytes_sort", "<list(bytes)>.sort() list(bytes)", sort),
    (
        "list_bytes_sortByAssociatedKeys",
        "<list(A)>.@sortByAssociatedKeys(list(bytes)) list(A)",
        sort_by_keys,
    ),
    ("list_a_index_of_int", "<list(A)>.indexOf(A) int", index_of),
    (
        "list_a_last_index_of_int",
        "<list(A)>.lastIndexOf(A) int",
        last_index_of,
    ),
    ("list_slice", "<list(A)>.slice(int,int) list(A)", slice),
    ("list_flatten", "<list(list(A))>.flatten() list(A)", flatten),
    (
        "list_flatten_int",
        "<list(dyn)>.flatten(int) list(dyn)",
        flatten,
    ),
    ("lists_range", "lists.range(int) list(int)", range),
    ("list_reverse", "<list(A)>.reverse() list(A)", reverse),
    ("list_distinct", "<list(A)>.distinct() list(A)", distinct),
    ("list_first", "<list(A)>.first() optional(A)", first),
    ("list_last", "<list(A)>.last() optional(A)", last),
];

/// The longest list that `lists.range` makes.
const MAX_RANGE: i64 = 1_000_000;

fn list<'v, 'a>(arguments: &'v [Value<'a>]) -> EvaluationResult<'a, &'v List<'a>> {
    match arguments {
        [Value::List(list), ..] => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_sorted<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let mut before: Option<Value<'a>> = None;
    for item in list(arguments)?.iter() {
        let item = item?;
        if let Some(before) = &before
            && before.compare(&item)? == Ordering::Greater
        {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(
    arguments: &[Value<'a>],
    zero: Value<'a>,
    meter: &mut Meter<'_>,
) -> EvaluationResult<'a> {
    let mut total = zero;
    for item in list(arguments)?.iter() {
        total = add(&[total, item?], meter)?;
    }
    Ok(total)
}

fn sum_int<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    // Without static types, the first element decides what is summed.
    let zero = match list(arguments)?.get(0).transpose()? {
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        _ => Value::Int(0),
    };
    sum(arguments, zero, meter)
}

fn sum_uint<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    sum(arguments, Value::Uint(0), meter)
}

fn sum_double<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    sum(arguments, Value::Double(0.0), meter)
}

fn sum_duration<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    sum(arguments, Value::Duration(0), meter)
}

fn extreme<'a>(arguments: &[Value<'a>], name: &str, replaced_by: Ordering) -> EvaluationResult<'a> {
    let mut extreme: Option<Value<'a>> = None;
    for item in list(arguments)?.iter() {
        let item = item?;
        let better = match &extreme {
            None => true,
            Some(other) => item.compare(other)? == replaced_by,
        };
        if better {
            extreme = Some(item);
        }
    }
    extreme.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn max<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    extreme(arguments, "max", Ordering::Greater)
}

fn min<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    extreme(arguments, "min", Ordering::Less)
}

fn index_of<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::List(list), item] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    for (i, other) in list.iter().enumerate() {
        if equal(&other?, item, meter)? {
            return Ok(Value::Int(i64::try_from(i).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

fn last_index_of<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::List(list), item] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let items = list.to_vec()?;
    for (i, other) in items.iter().enumerate().rev() {
        if equal(other, item, meter)? {
            return Ok(Value::Int(i64::try_from(i).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

fn slice<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::List(list), Value::Int(begin), Value::Int(end)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let invalid = |message: &str| {
        Err(EvalError::new(format!(
            "cannot slice({begin}, {end}), {message}"
        )))
    };
    let (Ok(first), Ok(end_index)) = (usize::try_from(*begin), usize::try_from(*end)) else {
        return invalid("negative indexes not supported");
    };
    if first > end_index {
        return invalid("start index must be less than or equal to end index");
    }
    if end_index > list.len() {
        let length = list.len();
        return invalid(&format!("list is length {length}"));
    }
    let items: EvaluationResult<'a, Vec<Value<'a>>> = (first..end_index)
        .filter_map(|index| list.get(index))
        .collect();
    Ok(Value::list(items?))
}

fn flatten<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let depth = match arguments {
        [_] => 1,
        [_, Value::Int(depth)] if *depth >= 0 => *depth,
        _ => return Err(EvalError::new("level must be non-negative")),
    };
    let mut out = Vec::new();
    flatten_into(&mut out, list(arguments)?, depth, meter)?;
    Ok(Value::list(out))
}

fn flatten_into<'a>(
    out: &mut Vec<Value<'a>>,
    list: &List<'a>,
    depth: i64,
    meter: &mut Meter<'_>,
) -> EvaluationResult<'a, ()> {
    for item in list.iter() {
        meter.compare_element()?;
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(out, &inner, depth - 1, meter)?,
            other => out.push(other),
        }
    }
    Ok(())
}

fn range<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::Int(end)] if *end <= MAX_RANGE => {
            // The list is paid before it is made.
            meter.charge(end.unsigned_abs() / 10)?;
            Ok(Value::list((0..*end).map(Value::Int).collect()))
        }
        [Value::Int(_)] => Err(EvalError::CostLimitExceeded),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn reverse<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let mut items = list(arguments)?.to_vec()?;
    items.reverse();
    Ok(Value::list(items))
}

fn distinct<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let mut items = Vec::new();
    for item in list(arguments)?.iter() {
        let item = item?;
        if !contains(&items, &item, meter)? {
            items.push(item);
        }
    }
    Ok(Value::list(items))
}

/// Sorts stably. The elements must have an order.
fn sort<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let list = list(arguments)?;
    sort_by_keys(
        &[Value::List(list.clone()), Value::List(list.clone())],
        meter,
    )
}

fn sort_by_keys<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::List(list), Value::List(keys)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let (items, keys) = (list.to_vec()?, keys.to_vec()?);
    let mut failed = None;
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(a, _), (b, _)| {
        a.compare(b).unwrap_or_else(|message| {
            failed = Some(message);
            Ordering::Equal
        })
    });
    match failed {
        Some(message) => Err(message),
        None => Ok(Value::list(
            pairs.into_iter().map(|(_, item)| item).collect(),
        )),
    }
}

fn first<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let first = list(arguments)?.get(0).transpose()?;
    Ok(Value::optional(first))
}

fn last<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let list = list(arguments)?;
    let last = list.len().checked_sub(1).and_then(|index| list.get(index));
    Ok(Value::optional(last.transpose()?))
}
