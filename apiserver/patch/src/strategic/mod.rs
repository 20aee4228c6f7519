//! Kubernetes' strategic merge patch: a merge patch that merges lists by the merge keys of
//! their schema. Rules and texts of `apimachinery/pkg/util/strategicpatch`.
//!
//! Directives: `$patch: delete|replace|merge` in an object or an item,
//! `$retainKeys`, `$setElementOrder/x`, `$deleteFromPrimitiveList/x`. Recursion is as deep
//! as the patch, whose depth its parser bounds.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use crate::Error;
use crate::element_order::{item_identity, normalize_element_order, positions};

const PATCH_DIRECTIVE: &str = "$patch";
const RETAIN_KEYS_DIRECTIVE: &str = "$retainKeys";
const SET_ELEMENT_ORDER_PREFIX: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST_PREFIX: &str = "$deleteFromPrimitiveList/";

type JsonObject = Map<String, Value>;

/// The patch metadata of one field in a schema (`LookupPatchMeta`).
pub(crate) trait PatchMetaLookup: Sized {
    /// The metadata of a child field, if the schema has it.
    fn field(&self, name: &str) -> Option<Self>;
    /// The metadata of the items of this list.
    fn item(&self) -> Option<Self>;
    /// Whether a list is merged rather than replaced.
    fn is_merged_list(&self) -> bool;
    /// The merge key of a merged list; `None` if its items are scalars.
    fn merge_key(&self) -> Option<&str>;
    /// Whether an object is replaced rather than merged.
    fn is_replaced_object(&self) -> bool;
}

impl PatchMetaLookup for openapi::SchemaCursor<'_> {
    fn field(&self, name: &str) -> Option<Self> {
        openapi::SchemaCursor::field(*self, name)
    }
    fn item(&self) -> Option<Self> {
        openapi::SchemaCursor::item(*self)
    }
    fn is_merged_list(&self) -> bool {
        self.patch_strategy().merge
    }
    fn merge_key(&self) -> Option<&str> {
        let key = &self.patch_strategy().merge_key;
        (!key.is_empty()).then_some(key)
    }
    fn is_replaced_object(&self) -> bool {
        self.patch_strategy().replace
    }
}

/// Merges `patch` into `doc` by the schema of the document's kind.
pub fn apply_strategic_merge_patch(
    doc: &Value,
    patch: &Value,
    schema: &openapi::Schema,
) -> Result<Value, Error> {
    apply_patch(doc, patch, Some(schema.root()))
}

fn apply_patch<S: PatchMetaLookup>(
    doc: &Value,
    patch: &Value,
    shape: Option<S>,
) -> Result<Value, Error> {
    let (Some(doc), Some(patch)) = (doc.as_object(), patch.as_object()) else {
        return Err(Error::BadRequest(
            "a strategic merge patch must be an object".into(),
        ));
    };
    merge_fields(doc.clone(), patch, shape.as_ref()).map(Value::Object)
}

fn merge_fields<S: PatchMetaLookup>(
    mut doc: JsonObject,
    patch: &JsonObject,
    shape: Option<&S>,
) -> Result<JsonObject, Error> {
    match patch.get(PATCH_DIRECTIVE).map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => doc.clear(),
        Some(Some("delete")) => return Ok(JsonObject::new()),
        Some(_) => return Err(unknown_directive(&patch[PATCH_DIRECTIVE])),
    }
    retain_keys(&mut doc, patch)?;
    let before = ordered_lists_before(&doc, patch);

    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST_PREFIX) {
            delete_from_primitives(&mut doc, field, value)?;
        } else if key != PATCH_DIRECTIVE
            && key != RETAIN_KEYS_DIRECTIVE
            && !key.starts_with(SET_ELEMENT_ORDER_PREFIX)
        {
            merge_field(&mut doc, key, value, shape)?;
        }
    }
    for (field, before) in before {
        let order = patch.get(&format!("{SET_ELEMENT_ORDER_PREFIX}{field}"));
        apply_element_order(&mut doc, patch, field, order, &before, shape)?;
    }
    Ok(doc)
}

/// The fields of `doc` that the patch orders, with their lists before the patch.
fn ordered_lists_before<'a>(doc: &JsonObject, patch: &'a JsonObject) -> Vec<(&'a str, Vec<Value>)> {
    let ordered = patch
        .keys()
        .filter_map(|k| k.strip_prefix(SET_ELEMENT_ORDER_PREFIX));
    ordered
        .map(|field| {
            let list = doc.get(field).and_then(Value::as_array);
            (field, list.cloned().unwrap_or_default())
        })
        .collect()
}

fn merge_field<S: PatchMetaLookup>(
    doc: &mut JsonObject,
    key: &str,
    value: &Value,
    shape: Option<&S>,
) -> Result<(), Error> {
    let field_meta = shape.and_then(|s| s.field(key));
    let merged = match value {
        Value::Null => {
            doc.remove(key);
            return Ok(());
        }
        Value::Object(fields) => {
            let replaces = field_meta
                .as_ref()
                .is_some_and(PatchMetaLookup::is_replaced_object);
            let old = match doc.remove(key) {
                Some(Value::Object(old)) if !replaces => old,
                _ => JsonObject::new(),
            };
            Value::Object(merge_fields(old, fields, field_meta.as_ref())?)
        }
        Value::Array(items) => {
            let old = match doc.remove(key) {
                Some(Value::Array(old)) => old,
                _ => Vec::new(),
            };
            Value::Array(merge_list(old, items, field_meta.as_ref())?)
        }
        scalar => scalar.clone(),
    };
    doc.insert(key.to_owned(), merged);
    Ok(())
}

fn merge_list<S: PatchMetaLookup>(
    old: Vec<Value>,
    patch: &[Value],
    shape: Option<&S>,
) -> Result<Vec<Value>, Error> {
    let key = shape.and_then(PatchMetaLookup::merge_key);
    let item_shape = shape.and_then(PatchMetaLookup::item);
    if !shape.is_some_and(PatchMetaLookup::is_merged_list) {
        return patch
            .iter()
            .filter(|item| item.get(PATCH_DIRECTIVE).is_none())
            .map(|item| new_value(item, item_shape.as_ref()))
            .collect();
    }
    let before = positions(&old, key);
    let Some(key) = key else {
        return Ok(merge_scalars(old, patch, &before));
    };
    merge_items(old, patch, &before, key, item_shape.as_ref())
}

fn merge_scalars(
    mut old: Vec<Value>,
    patch: &[Value],
    before: &HashMap<String, usize>,
) -> Vec<Value> {
    old.extend(patch.iter().cloned());
    let mut visited = HashSet::new();
    old.retain(|item| visited.insert(item_identity(item, None)));
    normalize_element_order(old, &positions(patch, None), before, None)
}

fn merge_items<S: PatchMetaLookup>(
    old: Vec<Value>,
    patch: &[Value],
    before: &HashMap<String, usize>,
    key: &str,
    shape: Option<&S>,
) -> Result<Vec<Value>, Error> {
    let mut slots: Vec<Option<Value>> = old.into_iter().map(Some).collect();
    let mut slots_by_id: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (i, slot) in slots.iter().enumerate() {
        let id = slot.as_ref().map(|v| item_identity(v, Some(key)));
        slots_by_id
            .entry(id.unwrap_or_default())
            .or_default()
            .push_back(i);
    }
    let mut replace = false;
    let mut merged_items = Vec::new();
    for item in patch {
        let Some(fields) = item.as_object() else {
            return Err(Error::Unprocessable(
                "the items of a list with a merge key must be objects".into(),
            ));
        };
        match fields.get(PATCH_DIRECTIVE).map(Value::as_str) {
            None | Some(Some("merge")) => merged_items.push((item, fields)),
            Some(Some("replace")) => replace = true,
            Some(Some("delete")) => {
                let id = require_item_identity(item, key)?;
                for deleted in slots_by_id.remove(&id).into_iter().flatten() {
                    slots[deleted] = None;
                }
            }
            Some(_) => return Err(unknown_directive(&fields[PATCH_DIRECTIVE])),
        }
    }
    if replace {
        return merged_items
            .iter()
            .map(|(item, _)| new_value(item, shape))
            .collect();
    }
    for (item, fields) in &merged_items {
        let id = require_item_identity(item, key)?;
        // The merge key of Service ports is not unique: each item is merged once.
        let slot = slots_by_id.get_mut(&id).and_then(VecDeque::pop_front);
        let old = match slot.and_then(|index| slots[index].take()) {
            Some(Value::Object(old)) => old,
            _ => JsonObject::new(),
        };
        let merged = Some(Value::Object(merge_fields(old, fields, shape)?));
        match slot {
            Some(index) => slots[index] = merged,
            None => slots.push(merged),
        }
    }
    let merged = slots.into_iter().flatten().collect();
    let patch_order = positions(merged_items.iter().map(|(item, _)| *item), Some(key));
    Ok(normalize_element_order(
        merged,
        &patch_order,
        before,
        Some(key),
    ))
}

/// A value of the patch without counterpart in the document, without directives and nulls.
fn new_value<S: PatchMetaLookup>(value: &Value, shape: Option<&S>) -> Result<Value, Error> {
    match value {
        Value::Object(fields) => merge_fields(JsonObject::new(), fields, shape).map(Value::Object),
        other => Ok(other.clone()),
    }
}

fn require_item_identity(item: &Value, key: &str) -> Result<String, Error> {
    match item.get(key) {
        Some(_) => Ok(item_identity(item, Some(key))),
        None => Err(Error::Unprocessable(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))),
    }
}

fn retain_keys(doc: &mut JsonObject, patch: &JsonObject) -> Result<(), Error> {
    let Some(directive) = patch.get(RETAIN_KEYS_DIRECTIVE) else {
        return Ok(());
    };
    let invalid = || {
        Error::BadRequest(format!(
            "invalid patch format of retainKeys: {directive} must list every key of the patch"
        ))
    };
    let keys: Option<HashSet<&str>> = directive
        .as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect());
    let keys = keys.ok_or_else(invalid)?;
    let listed = |(key, value): (&String, &Value)| {
        key.starts_with('$') || value.is_null() || keys.contains(key.as_str())
    };
    if !patch.iter().all(listed) {
        return Err(invalid());
    }
    doc.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

fn delete_from_primitives(doc: &mut JsonObject, field: &str, value: &Value) -> Result<(), Error> {
    let Some(deleted) = value.as_array() else {
        return Err(Error::BadRequest(format!(
            "invalid patch format of primitive list: {DELETE_FROM_PRIMITIVE_LIST_PREFIX}{field} must be a list"
        )));
    };
    let deleted: HashSet<String> = deleted.iter().map(|v| item_identity(v, None)).collect();
    if let Some(list) = doc.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|item| !deleted.contains(&item_identity(item, None)));
    }
    Ok(())
}

fn apply_element_order<S: PatchMetaLookup>(
    doc: &mut JsonObject,
    patch: &JsonObject,
    field: &str,
    order: Option<&Value>,
    before: &[Value],
    shape: Option<&S>,
) -> Result<(), Error> {
    let Some(order) = order.and_then(Value::as_array) else {
        return Err(Error::BadRequest(format!(
            "invalid patch format of setElementOrder list: {SET_ELEMENT_ORDER_PREFIX}{field} must be a list"
        )));
    };
    let field_meta = shape.and_then(|s| s.field(field));
    let key = field_meta.as_ref().and_then(PatchMetaLookup::merge_key);
    let patch_order = positions(order, key);
    if let Some(items) = patch.get(field).and_then(Value::as_array) {
        let patch_positions = items
            .iter()
            .filter(|item| item.get(PATCH_DIRECTIVE).is_none())
            .map(|item| patch_order.get(&item_identity(item, key)));
        let patch_positions: Option<Vec<&usize>> = patch_positions.collect();
        if !patch_positions.is_some_and(|p| p.is_sorted()) {
            return Err(Error::BadRequest(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER_PREFIX}{field} list:\n{}\n",
                Value::from(items.as_slice()),
                Value::from(order.as_slice())
            )));
        }
    }
    if let Some(list) = doc.get_mut(field).and_then(Value::as_array_mut) {
        let merged = std::mem::take(list);
        *list = normalize_element_order(merged, &patch_order, &positions(before, key), key);
    }
    Ok(())
}

fn unknown_directive(directive: &Value) -> Error {
    Error::Unprocessable(format!("unknown patch type found: {directive}"))
}

#[cfg(test)]
mod tests;
