//! Reads and writes `metadata.managedFields` (`managedfields/internal/managedfields.go`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinery::time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::field_set::FieldSet;
use crate::manager::{ManagedFieldSet, ManagerId, ManagerOperation, ManagerSets};

pub(crate) const FIELDS_TYPE: &str = "FieldsV1";

/// Why `metadata.managedFields` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedManagedFields(String);

impl MalformedManagedFields {
    pub(crate) fn new(message: String) -> Self {
        Self(message)
    }
}

/// The managers of an object, with the times of their last changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedFields {
    pub(crate) sets: ManagerSets,
    pub(crate) times: BTreeMap<ManagerId, Timestamp>,
}

/// An entry. The fields are in the order of stored objects.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFieldsEntry {
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    fields_type: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields_v1: Option<FieldSet>,
    #[serde(skip_serializing_if = "str::is_empty")]
    manager: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    operation: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Box<str>>,
}

/// An entry that is written, without a copy of its set.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EncodedEntry<'m> {
    api_version: &'m str,
    fields_type: &'static str,
    fields_v1: EncodedFieldSet<'m>,
    manager: &'m str,
    operation: ManagerOperation,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
}

/// A set, or its text if it was not parsed.
#[derive(Serialize)]
#[serde(untagged)]
enum EncodedFieldSet<'m> {
    Set(&'m FieldSet),
    Text(&'m RawValue),
}

impl<'m> EncodedEntry<'m> {
    fn new(
        id: &'m ManagerId,
        api_version: &'m str,
        time: Option<Timestamp>,
        fields_v1: EncodedFieldSet<'m>,
    ) -> Self {
        Self {
            api_version,
            fields_type: FIELDS_TYPE,
            fields_v1,
            manager: &id.manager,
            operation: id.operation,
            subresource: &id.subresource,
            time: time.map(time::rfc3339_seconds),
        }
    }

    /// An entry with the text of its set.
    pub(crate) fn with_text(
        id: &'m ManagerId,
        api_version: &'m str,
        time: Option<Timestamp>,
        text: &'m RawValue,
    ) -> Self {
        Self::new(id, api_version, time, EncodedFieldSet::Text(text))
    }
}

/// Sorts entries: appliers first, then by time and manager.
pub(crate) fn sort_entries(entries: &mut [EncodedEntry<'_>]) {
    // RFC 3339 with whole seconds in UTC sorts as text.
    let key = |e: &EncodedEntry<'_>| e.time.clone();
    entries.sort_by(|a, b| {
        (a.operation, key(a), a.manager, a.api_version, a.subresource).cmp(&(
            b.operation,
            key(b),
            b.manager,
            b.api_version,
            b.subresource,
        ))
    });
}

impl ManagedFields {
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The fields of every manager.
    pub fn sets(&self) -> &ManagerSets {
        &self.sets
    }

    /// Whether the managers own the same fields, whatever the times of their entries. A
    /// write that changes nothing else is none.
    pub fn same_ownership(&self, other: &Self) -> bool {
        self.sets == other.sets
    }

    /// Reads the value of `metadata.managedFields`.
    pub fn decode(entries: Option<&Value>) -> Result<Self, MalformedManagedFields> {
        let Some(entries) = entries.filter(|e| !e.is_null()) else {
            return Ok(Self::default());
        };
        let entries = Vec::<ManagedFieldsEntry>::deserialize(entries);
        Self::from_entries(entries.map_err(|e| MalformedManagedFields(e.to_string()))?)
    }

    /// Reads the JSON text of `metadata.managedFields`, without a tree in between.
    pub fn decode_json(text: &str) -> Result<Self, MalformedManagedFields> {
        let entries: Option<Vec<ManagedFieldsEntry>> =
            machinery::json::from_str(text).map_err(|e| MalformedManagedFields(e.to_string()))?;
        Self::from_entries(entries.unwrap_or_default())
    }

    fn from_entries(entries: Vec<ManagedFieldsEntry>) -> Result<Self, MalformedManagedFields> {
        let mut managed = Self::default();
        for (i, entry) in entries.into_iter().enumerate() {
            let operation = match &*entry.operation {
                "Apply" => ManagerOperation::Apply,
                "Update" => ManagerOperation::Update,
                _ => return Err(malformed("operation must be `Apply` or `Update`")),
            };
            if entry.api_version.is_empty() {
                return Err(malformed("apiVersion must not be empty"));
            }
            match &*entry.fields_type {
                FIELDS_TYPE => {}
                "" => {
                    let text = format!("missing fieldsType in managed fields entry {i}");
                    return Err(MalformedManagedFields(text));
                }
                other => {
                    let text = format!("invalid fieldsType {other:?} in managed fields entry {i}");
                    return Err(MalformedManagedFields(text));
                }
            }
            let ManagedFieldsEntry {
                api_version,
                manager,
                subresource,
                ..
            } = entry;
            let id = ManagerId::new(&manager, operation, &api_version, &subresource);
            if let Some(text) = entry.time {
                let at = time::parse(&text).map_err(MalformedManagedFields)?;
                managed.times.insert(id.clone(), at);
            }
            let set = entry.fields_v1.unwrap_or_default();
            managed
                .sets
                .insert(id, ManagedFieldSet { set, api_version });
        }
        Ok(managed)
    }

    /// Reads the managers for a write other than apply: the managers in the new object if it resets
    /// or replaces them, otherwise the managers of the live object. A write of a subresource cannot
    /// change them. Malformed lists count as empty.
    pub fn decode_live_or_new(
        live: Option<&Value>,
        new: Option<&Value>,
        is_subresource: bool,
    ) -> Self {
        if !is_subresource {
            if new.is_some_and(is_reset) {
                return Self::default();
            }
            if let Ok(managed) = Self::decode(new)
                && !managed.is_empty()
            {
                return managed;
            }
        }
        Self::decode(live).unwrap_or_default()
    }

    /// The value of `metadata.managedFields`; `None` without managers.
    pub fn encode(&self) -> Option<Value> {
        // The entries have string keys only, so that this cannot fail.
        self.entries()
            .and_then(|entries| serde_json::to_value(entries).ok())
    }

    /// The JSON text of `metadata.managedFields`; `None` without managers.
    pub fn encode_json(&self) -> Option<String> {
        self.entries()
            .and_then(|entries| serde_json::to_string(&entries).ok())
    }

    fn entries(&self) -> Option<Vec<EncodedEntry<'_>>> {
        if self.sets.is_empty() {
            return None;
        }
        let mut entries = self.unsorted_entries();
        sort_entries(&mut entries);
        Some(entries)
    }

    pub(crate) fn unsorted_entries(&self) -> Vec<EncodedEntry<'_>> {
        let sets = self.sets.iter();
        sets.map(|(id, managed)| {
            let time = self.times.get(id).copied();
            let set = EncodedFieldSet::Set(&managed.set);
            EncodedEntry::new(id, &managed.api_version, time, set)
        })
        .collect()
    }
}

fn malformed(text: &str) -> MalformedManagedFields {
    MalformedManagedFields(text.into())
}

/// Whether a client resets the managers: `[]` or `[{}]`.
fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}
