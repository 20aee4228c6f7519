//! Entries of `metadata.managedFields` of which only those are parsed that a write affects.
//!
//! Most writes change few fields, which few managers own. The text of all other entries is
//! scanned beside the changed fields and written again as it is.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use machinery::{json, time};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use serde_json::value::RawValue;

use crate::field_set::{FieldSet, FieldSetNode};
use crate::managed_fields::{
    EncodedEntry, FIELDS_TYPE, MalformedManagedFields, ManagedFields, sort_entries,
};
use crate::manager::{ManagedFieldSet, ManagerId, ManagerOperation};
use crate::path_element::PathElement;

/// An entry whose set is not parsed.
pub(crate) struct UnparsedEntry<'t> {
    pub(crate) id: ManagerId,
    pub(crate) api_version: Box<str>,
    time: Option<Timestamp>,
    fields: &'t RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnparsedEntryJson<'t> {
    #[serde(default)]
    api_version: Box<str>,
    #[serde(default)]
    fields_type: Box<str>,
    #[serde(borrow)]
    fields_v1: Option<&'t RawValue>,
    #[serde(default)]
    manager: Box<str>,
    operation: ManagerOperation,
    #[serde(default)]
    subresource: Box<str>,
    time: Option<Box<str>>,
}

/// Reads the text of `metadata.managedFields` without the sets; `None` if it has an entry
/// that [`ManagedFields::decode_json`] may reject or drop.
pub(crate) fn unparsed_entries(text: &str) -> Option<Vec<UnparsedEntry<'_>>> {
    let entries: Vec<UnparsedEntryJson<'_>> = json::from_str(text).ok()?;
    let mut ids = BTreeSet::new();
    let entries = entries.into_iter();
    entries
        .map(|e| {
            if e.api_version.is_empty() || &*e.fields_type != FIELDS_TYPE {
                return None;
            }
            let id = ManagerId::new(&e.manager, e.operation, &e.api_version, &e.subresource);
            if !ids.insert(id.clone()) {
                return None;
            }
            Some(UnparsedEntry {
                id,
                api_version: e.api_version,
                time: e.time.map(|t| time::parse(&t)).transpose().ok()?,
                fields: e.fields_v1.filter(|f| f.get() != "{}")?,
            })
        })
        .collect()
}

impl UnparsedEntry<'_> {
    /// Whether the entry contains a path of `changes`, or one below. Malformed text counts
    /// as affected.
    pub(crate) fn is_affected(&self, changes: &FieldSet) -> bool {
        let deserialized = json::str_deserializer(self.fields.get())
            .and_then(|mut deserializer| AffectedFields(changes).deserialize(&mut deserializer));
        deserialized.unwrap_or(true)
    }

    /// Parses the set of the entry.
    pub(crate) fn parse_into(
        self,
        managed: &mut ManagedFields,
    ) -> Result<(), MalformedManagedFields> {
        let set = FieldSet::from_fields_v1(self.fields.get())
            .map_err(|e| MalformedManagedFields::new(e.to_string()))?;
        if let Some(time) = self.time {
            managed.times.insert(self.id.clone(), time);
        }
        let api_version = self.api_version;
        managed
            .sets
            .insert(self.id, ManagedFieldSet { set, api_version });
        Ok(())
    }
}

/// The JSON text of parsed and unparsed entries; `None` without entries.
pub(crate) fn encode_entries(
    managed: &ManagedFields,
    unparsed: &[UnparsedEntry<'_>],
) -> Option<String> {
    let mut entries = managed.unsorted_entries();
    entries.extend(
        unparsed
            .iter()
            .map(|e| EncodedEntry::with_text(&e.id, &e.api_version, e.time, e.fields)),
    );
    if entries.is_empty() {
        return None;
    }
    sort_entries(&mut entries);
    serde_json::to_string(&entries).ok()
}

/// Scans a set in `FieldsV1` for paths of another set.
struct AffectedFields<'c>(&'c FieldSet);

impl<'de> DeserializeSeed<'de> for AffectedFields<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AffectedFields<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of FieldsV1")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut is_affected = false;
        while let Some(matching) = map.next_key_seed(MatchingKey(self.0))? {
            match matching {
                Some(below) if !is_affected => {
                    is_affected = match below.is_member {
                        true => {
                            map.next_value::<IgnoredAny>()?;
                            true
                        }
                        false => map.next_value_seed(AffectedFields(&below.children))?,
                    };
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(is_affected)
    }
}

/// Finds the node of a key in a set.
struct MatchingKey<'c>(&'c FieldSet);

impl<'de, 'c> DeserializeSeed<'de> for MatchingKey<'c> {
    type Value = Option<&'c FieldSetNode>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'c> Visitor<'_> for MatchingKey<'c> {
    type Value = Option<&'c FieldSetNode>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text == "." {
            return Ok(None);
        }
        if let Some(name) = text.strip_prefix("f:") {
            return Ok(self.0.field_node(name));
        }
        let element = PathElement::parse(text).map_err(E::custom)?;
        Ok(element.and_then(|element| self.0.node(&element)))
    }
}
