//! Adapts stored field sets to the schema: lists and maps that became atomic since, and
//! named fields that sets leave implicit (`typed/reconcile_schema.go`).

use crate::field_set::{FieldSet, FieldSetNode};
use crate::field_type::{FieldType, ListIdentity, ListMerge, MapMerge, ResolvedType};
use crate::path_element::PathElement;

/// The set for the current schema: a manager of fields in a value that became atomic owns
/// the value instead. `None` if the set is the same.
pub(crate) fn reconcile_with_schema(field_type: FieldType<'_>, set: &FieldSet) -> Option<FieldSet> {
    match reconcile_children(field_type.resolve(None), set, false) {
        SchemaChange::Granular(set) => Some(set),
        SchemaChange::Unchanged | SchemaChange::Atomic => None,
    }
}

enum SchemaChange {
    Unchanged,
    /// The value became atomic.
    Atomic,
    /// Something below changed.
    Granular(FieldSet),
}

fn reconcile_children(
    resolved: ResolvedType<'_>,
    set: &FieldSet,
    is_atomic_member: bool,
) -> SchemaChange {
    match resolved {
        ResolvedType::Scalar(_) => SchemaChange::Unchanged,
        ResolvedType::List(list) => match list.identity {
            ListIdentity::Atomic if !is_atomic_member => SchemaChange::Atomic,
            ListIdentity::Atomic => SchemaChange::Unchanged,
            _ => reconcile_nodes(set, |_| Some(list.item)),
        },
        ResolvedType::Map(map) if map.is_deduced() => SchemaChange::Unchanged,
        ResolvedType::Map(map) if map.is_atomic => match is_atomic_member || set.is_empty() {
            true => SchemaChange::Unchanged,
            false => SchemaChange::Atomic,
        },
        ResolvedType::Map(map) => reconcile_nodes(set, |element| match element {
            PathElement::FieldName(name) => map.field(name),
            _ => map.element,
        }),
    }
}

fn reconcile_nodes<'s>(
    set: &FieldSet,
    type_of: impl Fn(&PathElement) -> Option<FieldType<'s>>,
) -> SchemaChange {
    let mut changed: Option<FieldSet> = None;
    for (i, node) in set.nodes().iter().enumerate() {
        let is_leaf = node.is_member && node.children.is_empty();
        let change = match type_of(&node.element) {
            Some(field_type) => {
                reconcile_children(field_type.resolve(None), &node.children, is_leaf)
            }
            // Fields that the schema does not know stay as they are.
            None => SchemaChange::Unchanged,
        };
        let new = match change {
            SchemaChange::Unchanged => {
                if let Some(changed) = &mut changed {
                    changed.push(node.clone());
                }
                continue;
            }
            SchemaChange::Atomic => FieldSetNode::leaf(node.element.clone()),
            SchemaChange::Granular(children) => FieldSetNode {
                element: node.element.clone(),
                is_member: node.is_member,
                children,
            },
        };
        let changed = changed.get_or_insert_with(|| {
            let mut before = FieldSet::default();
            set.nodes()[..i].iter().for_each(|n| before.push(n.clone()));
            before
        });
        changed.push(new);
    }
    changed.map_or(SchemaChange::Unchanged, SchemaChange::Granular)
}

/// The set with every declared field through which a path goes. Sets contain `a.b` for an
/// object `a` with a declared field `b`, and leave `a` implicit.
pub(crate) fn named_fields_as_members(field_type: FieldType<'_>, set: &FieldSet) -> FieldSet {
    complete(Some(field_type), set)
}

fn complete(field_type: Option<FieldType<'_>>, set: &FieldSet) -> FieldSet {
    let (map, list) = merges_of(field_type);
    let mut out = FieldSet::default();
    for node in set.nodes() {
        let (is_named, child_type) = match (&node.element, &map, &list) {
            (PathElement::FieldName(name), Some(map), _) => (map.declares(name), map.field(name)),
            (PathElement::Key(_), _, Some(list)) => (false, Some(list.item)),
            _ => (false, None),
        };
        out.push(FieldSetNode {
            element: node.element.clone(),
            is_member: node.is_member || is_named,
            children: complete(child_type, &node.children),
        });
    }
    out
}

fn merges_of(field_type: Option<FieldType<'_>>) -> (Option<MapMerge<'_>>, Option<ListMerge<'_>>) {
    match field_type.map(|t| t.resolve(None)) {
        Some(ResolvedType::Map(map)) => (Some(map), None),
        Some(ResolvedType::List(list)) => (None, Some(list)),
        Some(ResolvedType::Scalar(_)) | None => (None, None),
    }
}
