//! Merges an applied configuration into the live object (`typed/merge.go`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use crate::field_type::{FieldType, ListIdentity, ListMerge, MapMerge, ResolvedType};
use crate::list_item::item_element;
use crate::path_element::PathElement;
use crate::typed::validation::ValidationErrors;

/// The live value with the fields of `config` set. Null in `config` sets a scalar or an
/// atomic value; it does not remove the fields of a map or the items of a list.
pub fn merge(
    field_type: FieldType<'_>,
    live: &Value,
    config: &Value,
) -> Result<Value, ValidationErrors> {
    match field_type.resolve(Some(config)) {
        ResolvedType::Scalar(_) => Ok(config.clone()),
        ResolvedType::Map(map) => merge_maps(&map, live, config),
        ResolvedType::List(list) => merge_lists(&list, live, config),
    }
}

fn merge_maps(map: &MapMerge<'_>, live: &Value, config: &Value) -> Result<Value, ValidationErrors> {
    let empty = Map::new();
    let live_fields = live.as_object().unwrap_or(&empty);
    let config_fields = config.as_object().unwrap_or(&empty);
    // Nothing in both: the difference between null and empty is preserved.
    if map.is_atomic || live_fields.is_empty() && config_fields.is_empty() {
        return Ok(config.clone());
    }
    // Not a copy of all live fields: their inner fields would be copied at every level.
    let unchanged = live_fields
        .iter()
        .filter(|(name, _)| !config_fields.contains_key(*name))
        .map(|(name, value)| (name.clone(), value.clone()));
    let mut merged: Map<String, Value> = unchanged.collect();
    for (name, value) in config_fields {
        let value = match live_fields.get(name) {
            Some(live) => merge(map.field_or_deduced(name), live, value)?,
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    Ok(Value::Object(merged))
}

fn merge_lists(
    list: &ListMerge<'_>,
    live: &Value,
    config: &Value,
) -> Result<Value, ValidationErrors> {
    let live_items = live.as_array().map_or(&[][..], Vec::as_slice);
    let config_items = config.as_array().map_or(&[][..], Vec::as_slice);
    let is_atomic = matches!(list.identity, ListIdentity::Atomic);
    if is_atomic || live_items.is_empty() && config_items.is_empty() {
        return Ok(config.clone());
    }
    let live = IdentifiedList::new(list, live_items, true)?;
    let config = IdentifiedList::new(list, config_items, false)?;
    Ok(Value::Array(live.merge(list.item, &config)?))
}

/// A list with the identity of every item.
struct IdentifiedList<'v> {
    items: Vec<(PathElement, &'v Value)>,
    /// The item of each identity; `None` if there are several.
    unique: BTreeMap<PathElement, Option<&'v Value>>,
}

impl<'v> IdentifiedList<'v> {
    fn new(
        list: &ListMerge<'_>,
        values: &'v [Value],
        allow_duplicates: bool,
    ) -> Result<Self, ValidationErrors> {
        let mut items = Vec::with_capacity(values.len());
        let mut unique = BTreeMap::new();
        for (i, value) in values.iter().enumerate() {
            let element = item_element(list, value)
                .map_err(|detail| ValidationErrors::single(format!("element {i}: {detail}")))?;
            let is_new = unique.insert(element.clone(), Some(value)).is_none();
            if !is_new {
                if !allow_duplicates {
                    let message = format!("duplicate entries for key {element}");
                    return Err(ValidationErrors::single(message));
                }
                unique.insert(element.clone(), None);
            }
            items.push((element, value));
        }
        Ok(Self { items, unique })
    }

    fn contains(&self, element: &PathElement) -> bool {
        self.unique.contains_key(element)
    }

    /// Merges a configured list. Items of both lists stand in the order of the configured
    /// one; live items stay behind the items that they followed.
    fn merge(&self, item: FieldType<'_>, config: &Self) -> Result<Vec<Value>, ValidationErrors> {
        let (live_items, config_items) = (&self.items, &config.items);
        let mut merged = Vec::with_capacity(live_items.len().max(config_items.len()));
        let mut shared: VecDeque<&PathElement> = config_items
            .iter()
            .map(|(element, _)| element)
            .filter(|element| self.contains(element))
            .collect();
        let mut done: BTreeSet<&PathElement> = BTreeSet::new();
        let (mut l, mut c) = (0, 0);
        while l < live_items.len() || c < config_items.len() {
            if let (Some((live, _)), Some((configured, _))) =
                (live_items.get(l), config_items.get(c))
            {
                if live == configured {
                    merged.push(self.merge_item(item, &config_items[c])?);
                    done.insert(live);
                    shared.pop_front();
                    l += 1;
                    c += 1;
                    continue;
                }
                // A shared item that a later round takes.
                if config.contains(live) && shared.front().is_some_and(|next| *next != live) {
                    l += 1;
                    continue;
                }
            }
            if let Some((live, value)) = live_items.get(l) {
                if !config.contains(live) {
                    merged.push((*value).clone());
                    l += 1;
                    continue;
                }
                if done.contains(live) {
                    l += 1;
                }
            }
            if let Some(configured) = config_items.get(c) {
                merged.push(self.merge_item(item, configured)?);
                done.insert(&configured.0);
                c += 1;
                if shared.front() == Some(&&configured.0) {
                    shared.pop_front();
                }
            }
        }
        Ok(merged)
    }

    /// A configured item, merged with the live one unless that is ambiguous.
    fn merge_item(
        &self,
        item: FieldType<'_>,
        (element, value): &(PathElement, &Value),
    ) -> Result<Value, ValidationErrors> {
        match self.unique.get(element) {
            Some(Some(live)) => merge(item, live, value),
            _ => Ok((*value).clone()),
        }
    }
}
