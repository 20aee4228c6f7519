//! Removes the fields of a set from a value, or everything else (`typed/remove.go`).

use serde_json::{Map, Value};

use crate::field_set::FieldSet;
use crate::field_type::{FieldType, ListIdentity, ListMerge, MapMerge, ResolvedType};
use crate::list_item::item_element;
use crate::path_element::PathElement;
use crate::typed::field_set_of_value::field_set_of;

/// Removes the fields of a set. Objects and lists of which nothing is left become null.
pub fn remove_items(field_type: FieldType<'_>, value: &Value, set: &FieldSet) -> Value {
    if set.is_empty() {
        return value.clone();
    }
    match (field_type.resolve(Some(value)), value) {
        (ResolvedType::Map(map), Value::Object(fields)) if !map.is_atomic => {
            null_if(remove_fields(&map, fields, set), Map::is_empty)
        }
        (ResolvedType::List(list), Value::Array(items))
            if !matches!(list.identity, ListIdentity::Atomic) =>
        {
            null_if(remove_from_list(&list, items, set), Vec::is_empty)
        }
        (ResolvedType::Scalar(_), value) => value.clone(),
        _ => Value::Null,
    }
}

fn null_if<T: Into<Value>>(content: T, is_empty: impl Fn(&T) -> bool) -> Value {
    match is_empty(&content) {
        true => Value::Null,
        false => content.into(),
    }
}

fn remove_fields(
    map: &MapMerge<'_>,
    fields: &Map<String, Value>,
    set: &FieldSet,
) -> Map<String, Value> {
    let mut rest = Map::new();
    for (name, value) in fields {
        let value = match set.node(&PathElement::field(name)) {
            Some(node) if node.is_member => continue,
            Some(node) => remove_items(map.field_or_deduced(name), value, &node.children),
            None => value.clone(),
        };
        rest.insert(name.clone(), value);
    }
    rest
}

fn remove_from_list(list: &ListMerge<'_>, items: &[Value], set: &FieldSet) -> Vec<Value> {
    let mut rest = Vec::with_capacity(items.len());
    for item in items {
        let node = item_element(list, item).ok().and_then(|e| set.node(&e));
        rest.push(match node {
            Some(node) if node.is_member => continue,
            Some(node) => remove_items(list.item, item, &node.children),
            None => item.clone(),
        });
    }
    rest
}

/// Removes everything but the fields of a set.
pub fn extract_items(field_type: FieldType<'_>, value: &Value, set: &FieldSet) -> Value {
    match (field_type.resolve(Some(value)), value) {
        (ResolvedType::Map(map), Value::Object(fields)) if !map.is_atomic && !fields.is_empty() => {
            null_if(extract_fields(&map, fields, set), Map::is_empty)
        }
        (ResolvedType::List(list), Value::Array(items))
            if !matches!(list.identity, ListIdentity::Atomic) && !items.is_empty() =>
        {
            null_if(extract_from_list(&list, items, set), Vec::is_empty)
        }
        (_, value) => value.clone(),
    }
}

fn extract_fields(
    map: &MapMerge<'_>,
    fields: &Map<String, Value>,
    set: &FieldSet,
) -> Map<String, Value> {
    let mut extracted = Map::new();
    for (name, value) in fields {
        if let Some(node) = set.node(&PathElement::field(name)) {
            let value = extract_items(map.field_or_deduced(name), value, &node.children);
            extracted.insert(name.clone(), value);
        }
    }
    extracted
}

fn extract_from_list(list: &ListMerge<'_>, items: &[Value], set: &FieldSet) -> Vec<Value> {
    let nodes = items.iter().filter_map(|item| {
        let node = set.node(&item_element(list, item).ok()?)?;
        Some((item, node))
    });
    nodes
        .map(|(item, node)| match node.children.is_empty() {
            true => item.clone(),
            false => extract_items(list.item, item, &node.children),
        })
        .collect()
}

/// As [`extract_items`], with the key fields of extracted list items.
pub fn extract_items_with_keys(field_type: FieldType<'_>, value: &Value, set: &FieldSet) -> Value {
    let present = field_set_of(field_type, value);
    let mut with_keys = set.clone();
    set.for_each_path(&mut |path| {
        if !present.contains(path) {
            return;
        }
        for (i, element) in path.iter().enumerate() {
            let PathElement::Key(fields) = element else {
                continue;
            };
            for field in fields.iter() {
                let mut key = path[..=i].to_vec();
                key.push(PathElement::field(&field.name));
                with_keys.insert(&key);
            }
        }
    });
    extract_items(field_type, value, &with_keys)
}
