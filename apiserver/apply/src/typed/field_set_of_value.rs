//! The field set of a value: what a manager owns that applies it (`typed/tofieldset.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::field_set::{FieldSet, FieldSetNode};
use crate::field_type::{FieldType, ListIdentity, ListMerge, MapMerge, ResolvedType};
use crate::list_item::identified_items;
use crate::path_element::PathElement;

/// The leaves of a value, the items of its lists and the keys of its maps.
pub fn field_set_of(field_type: FieldType<'_>, value: &Value) -> FieldSet {
    node_of(field_type, value).0
}

/// The set below a value, and whether the value itself is owned.
fn node_of(field_type: FieldType<'_>, value: &Value) -> (FieldSet, bool) {
    match field_type.resolve(Some(value)) {
        ResolvedType::Scalar(_) => (FieldSet::default(), true),
        ResolvedType::List(list) => match (list.identity, value) {
            (ListIdentity::Atomic, _) => (FieldSet::default(), true),
            (_, Value::Array(items)) => (set_of_items(&list, items), false),
            _ => (FieldSet::default(), false),
        },
        ResolvedType::Map(map) => match value {
            _ if map.is_atomic => (FieldSet::default(), true),
            Value::Object(fields) => (set_of_fields(&map, fields), false),
            _ => (FieldSet::default(), false),
        },
    }
}

fn set_of_fields(map: &MapMerge<'_>, fields: &serde_json::Map<String, Value>) -> FieldSet {
    let mut set = FieldSet::default();
    for (name, value) in fields {
        let (children, is_member) = node_of(map.field_or_deduced(name), value);
        let is_empty = value.is_null() || value.as_object().is_some_and(|o| o.is_empty());
        set.push(FieldSetNode {
            element: PathElement::field(name),
            is_member: is_member || is_empty || !map.declares(name),
            children,
        });
    }
    set
}

fn set_of_items(list: &ListMerge<'_>, items: &[Value]) -> FieldSet {
    let mut by_element: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for (element, item) in identified_items(list, items) {
        by_element.entry(element).or_default().push(item);
    }
    let mut set = FieldSet::default();
    for (element, items) in by_element {
        // Items of the same identity are owned together.
        let children = match items[..] {
            [item] => node_of(list.item, item).0,
            _ => FieldSet::default(),
        };
        set.push(FieldSetNode {
            element,
            is_member: true,
            children,
        });
    }
    set
}
