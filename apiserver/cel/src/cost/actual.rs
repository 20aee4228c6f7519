//! The cost of a call, given its arguments.

use crate::cost::call_estimates::compares_sizes;
use crate::cost::range::scale;
use crate::cost::{
    AUTHORIZATION_CHECK, CREATE_LIST, CREATE_MAP, CREATE_STRUCT, PER_CHAR, PER_PATTERN_CHAR, SELECT,
};
use crate::value::{Opaque, Value};

/// Accessing an identifier or a field.
pub(crate) const SELECT_COST: u64 = SELECT;
pub(crate) const LIST_COST: u64 = CREATE_LIST;
pub(crate) const MAP_COST: u64 = CREATE_MAP;
pub(crate) const STRUCT_COST: u64 = CREATE_STRUCT;

/// Bytes of text that are as much work as one element of a list.
const BYTES_PER_STEP: usize = 16;

/// The number of elements and characters that a call may have to read, whatever its declared cost
/// is.
pub(crate) fn work(function: &str, arguments: &[Value<'_>]) -> u64 {
    let lists = !matches!(
        function,
        "_[_]" | "_[?_]" | "size" | "first" | "last" | "@in"
    );
    let mut steps = 1;
    for argument in arguments {
        steps += match argument {
            Value::String(text) => text.as_str().len() / BYTES_PER_STEP,
            Value::Bytes(bytes) => bytes.len() / BYTES_PER_STEP,
            Value::List(list) if lists => list.len(),
            Value::Map(map) if function == "cel.@mapInsert" => map.len(),
            _ => 0,
        };
    }
    steps as u64
}

fn size(value: Option<&Value<'_>>) -> u64 {
    let mut value = value;
    while let Some(Value::Optional(Some(inner))) = value {
        value = Some(inner);
    }
    value.and_then(Value::size).unwrap_or(1)
}

/// The cost of a call; `None` when only its result tells.
pub(crate) fn call_cost(function: &str, id: &str, arguments: &[Value<'_>]) -> Option<u64> {
    if function == "join" {
        return None;
    }
    let cost = list_extension(id, arguments)
        .or_else(|| kubernetes(function, id, arguments))
        .unwrap_or_else(|| standard(id, arguments));
    Some(cost)
}

/// The cost of `join`: the cost of building its result.
pub(crate) fn join_cost(result: &Value<'_>) -> u64 {
    scale(size(Some(result)), 2.0 * PER_CHAR)
}

fn list_extension(id: &str, arguments: &[Value<'_>]) -> Option<u64> {
    let (a, b) = (size(arguments.first()), size(arguments.get(1)));
    let allocating = |factor: f64, n: u64| scale(n, factor).saturating_add(1 + CREATE_LIST);
    let compared = |list: Option<&Value<'_>>| {
        let text = match list {
            Some(Value::List(list)) => {
                matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))))
            }
            _ => false,
        };
        let n = size(list);
        allocating(if text { 2.0 + PER_CHAR } else { 2.0 }, n.saturating_mul(n))
    };
    Some(match id {
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            a.saturating_mul(b).saturating_add(1)
        }
        "list_sets_equivalent_list" => a.saturating_mul(b).saturating_mul(2).saturating_add(1),
        "list_slice" | "list_reverse" => allocating(1.0, a),
        "lists_range" => match arguments {
            [Value::Int(end)] => allocating(1.0, u64::try_from(*end).unwrap_or(0)),
            _ => 1,
        },
        "list_flatten" => allocating(1.0, a),
        "list_flatten_int" => match arguments.get(1) {
            Some(Value::Int(depth)) => allocating(depth.max(&0).unsigned_abs() as f64, a),
            _ => 1,
        },
        "list_distinct" => compared(arguments.first()),
        id if id.ends_with("_sort") => compared(arguments.first()),
        id if id.ends_with("_sortByAssociatedKeys") => compared(arguments.get(1)),
        _ => return None,
    })
}

fn kubernetes(function: &str, id: &str, arguments: &[Value<'_>]) -> Option<u64> {
    let (a, b) = (size(arguments.first()), size(arguments.get(1)));
    let traversal = |n: u64| scale(n, PER_CHAR);
    Some(match function {
        "check" => AUTHORIZATION_CHECK,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => arguments
            .first()
            .map_or(0, |value| traversal_cost(value, 0)),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => {
            traversal(a)
        }
        "replace" | "split" => scale(a, 2.0 * PER_CHAR),
        "find" | "findAll" => {
            traversal(a.saturating_add(1)).saturating_mul(scale(b, PER_PATTERN_CHAR))
        }
        "ip" if id == "cidr_ip" => 1,
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            traversal(a)
        }
        "ip.isCanonical" => scale(a, 2.0 * PER_CHAR),
        "containsIP" | "containsCIDR" => {
            let bytes = address_size(arguments.first());
            let mut cost = traversal(2 * bytes);
            if function == "containsCIDR" {
                cost += traversal(bytes) + 1;
            }
            if id.ends_with("_string") {
                cost = cost.saturating_add(traversal(b));
            }
            cost
        }
        "validate" => {
            let pattern = match arguments.first() {
                Some(Value::Opaque(opaque)) => match &**opaque {
                    Opaque::Format(format) => format.pattern_length,
                    _ => 1,
                },
                _ => 1,
            };
            traversal(b.saturating_add(1)).saturating_mul(scale(pattern, PER_PATTERN_CHAR))
        }
        "_==_" if matches!(arguments.first(), Some(Value::Opaque(_))) => 1,
        _ => return None,
    })
}

/// The bytes of a network's address with its prefix.
fn address_size(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(Value::Opaque(opaque)) => match **opaque {
            Opaque::Cidr(address, _) if address.is_ipv4() => 4,
            _ => 16,
        },
        _ => 16,
    }
}

/// The cost of reading a whole value.
fn traversal_cost(value: &Value<'_>, depth: usize) -> u64 {
    if depth > machinery::json::MAX_DEPTH {
        return 1;
    }
    match value {
        Value::String(text) => (text.as_str().len() as f64 * PER_CHAR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHAR) as u64,
        Value::List(list) => {
            let items = list.iter().flatten();
            items.fold(0, |sum: u64, item| {
                sum.saturating_add(traversal_cost(&item, depth + 1))
            })
        }
        Value::Map(map) => {
            let entries = map.entries().unwrap_or_default();
            entries.iter().fold(0, |sum: u64, (key, value)| {
                let entry = traversal_cost(key, depth + 1) + traversal_cost(value, depth + 1);
                sum.saturating_add(entry)
            })
        }
        _ => 1,
    }
}

fn standard(id: &str, arguments: &[Value<'_>]) -> u64 {
    let (a, b) = (arguments.first(), arguments.get(1));
    let traversal = |n: u64| scale(n, PER_CHAR);
    match id {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => traversal(size(a)),
        "in_list" => size(b),
        "add_string" | "add_bytes" => traversal(size(a).saturating_add(size(b))),
        "matches_string" | "matches" => {
            let text = traversal(size(a).saturating_add(1));
            text.saturating_mul(scale(size(b), PER_PATTERN_CHAR))
        }
        "contains_string" => traversal(size(a)).saturating_mul(traversal(size(b))),
        id if compares_sizes(id) => traversal(size(a).min(size(b))),
        _ => 1,
    }
}
