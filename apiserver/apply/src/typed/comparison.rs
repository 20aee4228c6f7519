//! Compares two values of a type by field (`typed/compare.go`).
//!
//! Equal parts of the values cost no allocation.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::field_set::{FieldSet, FieldSetNode};
use crate::field_type::{FieldType, ListIdentity, ListMerge, MapMerge, ResolvedType};
use crate::json_order::equal;
use crate::list_item::identified_items;
use crate::path_element::PathElement;

/// The fields by which a value differs from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the old value has.
    pub removed: FieldSet,
    /// Fields that both have, with different values.
    pub modified: FieldSet,
    /// Fields that only the new value has.
    pub added: FieldSet,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// All fields that differ.
    pub(crate) fn all(&self) -> FieldSet {
        self.removed.union(&self.modified).union(&self.added)
    }

    /// Without fields of a set and all fields below them.
    pub fn exclude(self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }

    fn attach(&mut self, element: &PathElement, comparison: ValueComparison) {
        let ValueComparison { fields, flags } = comparison;
        for (set, children, is_member) in [
            (&mut self.removed, fields.removed, flags.removed),
            (&mut self.modified, fields.modified, flags.modified),
            (&mut self.added, fields.added, flags.added),
        ] {
            if is_member || !children.is_empty() {
                set.push(FieldSetNode {
                    element: element.clone(),
                    is_member,
                    children,
                });
            }
        }
    }
}

/// The change of one value, and of the fields below it.
#[derive(Default)]
struct ValueComparison {
    fields: Comparison,
    flags: ValueChange,
}

#[derive(Clone, Copy, Default)]
struct ValueChange {
    removed: bool,
    modified: bool,
    added: bool,
}

impl ValueComparison {
    fn is_same(&self) -> bool {
        let ValueChange {
            removed,
            modified,
            added,
        } = self.flags;
        !removed && !modified && !added && self.fields.is_same()
    }

    fn modified_if(is_modified: bool) -> Self {
        Self {
            flags: ValueChange {
                modified: is_modified,
                ..ValueChange::default()
            },
            ..Self::default()
        }
    }

    fn union(self, other: Self) -> Self {
        let (a, b) = (self.fields, other.fields);
        Self {
            fields: Comparison {
                removed: a.removed.union(&b.removed),
                modified: a.modified.union(&b.modified),
                added: a.added.union(&b.added),
            },
            flags: ValueChange {
                removed: self.flags.removed || other.flags.removed,
                modified: self.flags.modified || other.flags.modified,
                added: self.flags.added || other.flags.added,
            },
        }
    }
}

/// Compares an old and a new value.
pub fn compare(field_type: FieldType<'_>, old: &Value, new: &Value) -> Comparison {
    compare_both(field_type, old, new).fields
}

fn compare_values(
    field_type: FieldType<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> ValueComparison {
    let mut result = ValueComparison::default();
    match (old, new) {
        (Some(old), Some(new)) => return compare_both(field_type, old, new),
        (Some(old), None) => {
            result.flags.removed = true;
            result.fields.removed = fields_below(field_type, old);
        }
        (None, Some(new)) => {
            result.flags.added = true;
            result.fields.added = fields_below(field_type, new);
        }
        (None, None) => {}
    }
    result
}

fn compare_both(field_type: FieldType<'_>, old: &Value, new: &Value) -> ValueComparison {
    let as_new = compare_as(field_type.resolve(Some(new)), old, new);
    let same_type = std::mem::discriminant(old) == std::mem::discriminant(new);
    if !field_type.is_untyped() || same_type {
        return as_new;
    }
    // The value has another type than before.
    compare_as(field_type.resolve(Some(old)), old, new).union(as_new)
}

fn compare_as(resolved: ResolvedType<'_>, old: &Value, new: &Value) -> ValueComparison {
    match resolved {
        ResolvedType::Scalar(_) => ValueComparison::modified_if(!equal(old, new)),
        ResolvedType::List(list) => compare_lists(&list, old, new),
        ResolvedType::Map(map) => {
            let (Some(old_fields), new_fields) = (non_empty(old), non_empty(new)) else {
                return match non_empty(new) {
                    Some(new_fields) if !map.is_atomic => {
                        compare_fields(&map, None, Some(new_fields))
                    }
                    _ => ValueComparison::modified_if(!equal(old, new)),
                };
            };
            if map.is_atomic {
                return ValueComparison::modified_if(!equal(old, new));
            }
            compare_fields(&map, Some(old_fields), new_fields)
        }
    }
}

fn non_empty(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|fields| !fields.is_empty())
}

fn compare_fields(
    map: &MapMerge<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
) -> ValueComparison {
    let mut result = ValueComparison::default();
    let mut old = old.into_iter().flatten().peekable();
    let mut new = new.into_iter().flatten().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return result,
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        let Some((name, _)) = before.or(after) else {
            return result;
        };
        let field_type = map.field_or_deduced(name);
        let comparison = compare_values(field_type, before.map(|(_, v)| v), after.map(|(_, v)| v));
        if !comparison.is_same() {
            result.fields.attach(&PathElement::field(name), comparison);
        }
    }
}

fn compare_lists(list: &ListMerge<'_>, old: &Value, new: &Value) -> ValueComparison {
    let items = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    let is_leaf = matches!(list.identity, ListIdentity::Atomic) || items(old) && items(new);
    if is_leaf || old == new {
        return ValueComparison::modified_if(!equal(old, new));
    }
    let mut by_element: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (element, item) in list_items(list, old) {
        by_element.entry(element).or_default().0.push(item);
    }
    for (element, item) in list_items(list, new) {
        by_element.entry(element).or_default().1.push(item);
    }
    let mut result = ValueComparison::default();
    for (element, (before, after)) in by_element {
        let comparison = compare_items(list.item, &before, &after);
        if !comparison.is_same() {
            result.fields.attach(&element, comparison);
        }
    }
    result
}

fn list_items<'v>(list: &ListMerge<'_>, value: &'v Value) -> Vec<(PathElement, &'v Value)> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    identified_items(list, items)
}

/// Compares the items of one identity. Several such items are compared together, and are
/// owned by the path of their identity alone.
fn compare_items(item: FieldType<'_>, before: &[&Value], after: &[&Value]) -> ValueComparison {
    match (before.len(), after.len()) {
        (0 | 1, 0 | 1) => compare_values(item, before.first().copied(), after.first().copied()),
        (0 | 1, _) => {
            let mut result = compare_values(item, before.first().copied(), None);
            result.flags.added = true;
            result
        }
        (_, 0 | 1) => {
            let mut result = compare_values(item, None, after.first().copied());
            result.flags.removed = true;
            result
        }
        _ => {
            let mut pairs = before.iter().zip(after);
            let is_same = before.len() == after.len() && pairs.all(|(a, b)| equal(a, b));
            ValueComparison::modified_if(!is_same)
        }
    }
}

/// The fields of a value that is added or removed as a whole.
fn fields_below(field_type: FieldType<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match (field_type.resolve(Some(value)), value) {
        (ResolvedType::Map(map), Value::Object(fields)) if !map.is_atomic => {
            for (name, value) in fields {
                set.push(FieldSetNode {
                    element: PathElement::field(name),
                    is_member: true,
                    children: fields_below(map.field_or_deduced(name), value),
                });
            }
        }
        (ResolvedType::List(list), Value::Array(items)) => {
            let mut by_element: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
            for (element, item) in identified_items(&list, items) {
                by_element.entry(element).or_default().push(item);
            }
            for (element, items) in by_element {
                let children = match items[..] {
                    [item] => fields_below(list.item, item),
                    _ => FieldSet::default(),
                };
                set.push(FieldSetNode {
                    element,
                    is_member: true,
                    children,
                });
            }
        }
        _ => {}
    }
    set
}
