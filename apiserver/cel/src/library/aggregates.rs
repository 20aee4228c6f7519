//! Sizes, indexes and membership of lists and maps, and insertion into maps.

use std::rc::Rc;

use crate::equality::equal;
use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::to_json::describe;
use crate::value::{EvaluationResult, Map, OwnedMap, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("size_string", "size(string) int", size),
    ("size_bytes", "size(bytes) int", size),
    ("size_list", "size(list(A)) int", size),
    ("size_map", "size(map(A,B)) int", size),
    ("string_size", "<string>.size() int", size),
    ("bytes_size", "<bytes>.size() int", size),
    ("list_size", "<list(A)>.size() int", size),
    ("map_size", "<map(A,B)>.size() int", size),
    ("in_list", "@in(A,list(A)) bool", in_list),
    ("in_map", "@in(A,map(A,B)) bool", in_map),
    ("index_list", "_[_](list(A),int) A", index),
    ("index_map", "_[_](map(A,B),A) B", index),
    (
        "optional_list_index_int",
        "_[_](optional(list(A)),int) optional(A)",
        optional_index,
    ),
    (
        "optional_map_index_value",
        "_[_](optional(map(A,B)),A) optional(B)",
        optional_index,
    ),
    (
        "list_optindex_optional_int",
        "_[?_](list(A),int) optional(A)",
        optional_index,
    ),
    (
        "optional_list_optindex_optional_int",
        "_[?_](optional(list(A)),int) optional(A)",
        optional_index,
    ),
    (
        "map_optindex_optional_value",
        "_[?_](map(A,B),A) optional(B)",
        optional_index,
    ),
    (
        "optional_map_optindex_optional_value",
        "_[?_](optional(map(A,B)),A) optional(B)",
        optional_index,
    ),
    (
        "@mapInsert_map_key_value",
        "cel.@mapInsert(map(A,B),A,B) map(A,B)",
        insert_entry,
    ),
    (
        "@mapInsert_map_map",
        "cel.@mapInsert(map(A,B),map(A,B)) map(A,B)",
        insert_entries,
    ),
];

fn size<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let size = arguments.first().and_then(Value::size);
    let size = size.and_then(|n| i64::try_from(n).ok());
    size.map(Value::Int).ok_or(EvalError::NoSuchOverload)
}

fn in_list<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [item, Value::List(list)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    for other in list.iter() {
        if equal(&other?, item, meter)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn in_map<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [key, Value::Map(map)] => Ok(Value::Bool(map.get(key).is_some())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// The position that an index names; doubles without fraction are indexes too.
fn position(index: &Value<'_>) -> Result<i64, EvalError> {
    match index {
        Value::Int(n) => Ok(*n),
        Value::Uint(n) => i64::try_from(*n).map_err(|_| EvalError::overflow()),
        Value::Double(n) if n.fract() == 0.0 && n.abs() < 9e18 => Ok(*n as i64),
        _ => Err(EvalError::new(format!(
            "unsupported index type '{}' in list",
            index.type_name()
        ))),
    }
}

fn lookup<'a>(container: &Value<'a>, index: &Value<'a>) -> EvaluationResult<'a, Option<Value<'a>>> {
    match container {
        Value::List(list) => {
            let element_index = usize::try_from(position(index)?).ok();
            element_index
                .and_then(|element_index| list.get(element_index))
                .transpose()
        }
        Value::Map(map) => map.get(index).transpose(),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(crate) fn index<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [container, index] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    lookup(container, index)?.ok_or_else(|| match container {
        Value::List(_) => EvalError::new(format!("index out of bounds: {}", describe(index))),
        _ => EvalError::no_such_key(describe(index)),
    })
}

pub(crate) fn optional_index<'a>(
    arguments: &[Value<'a>],
    _: &mut Meter<'_>,
) -> EvaluationResult<'a> {
    let [container, index] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let element = match container {
        Value::Optional(None) => None,
        Value::Optional(Some(container)) => lookup(container, index)?,
        container => lookup(container, index)?,
    };
    Ok(Value::optional(element))
}

fn owned<'a>(map: &Map<'a>) -> EvaluationResult<'a, OwnedMap<'a>> {
    if let Map::Owned(map) = map {
        return Ok((**map).clone());
    }
    let mut owned = OwnedMap::default();
    for (key, value) in map.entries()? {
        owned.insert(key, value)?;
    }
    Ok(owned)
}

fn insert_entry<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::Map(map), key, value] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut map = owned(map)?;
    map.insert(key.clone(), value.clone())?;
    Ok(Value::Map(Map::Owned(Rc::new(map))))
}

fn insert_entries<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::Map(map), Value::Map(entries)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut map = owned(map)?;
    for (key, value) in entries.entries()? {
        map.insert(key, value)?;
    }
    Ok(Value::Map(Map::Owned(Rc::new(map))))
}
