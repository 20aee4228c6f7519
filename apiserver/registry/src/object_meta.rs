//! Maintains the fields of `metadata` that the server owns: identity, timestamps and
//! generation (`apiserver/pkg/registry/rest/{create,update,meta}.go`).
//!
//! `admission::metadata` validates metadata.

use std::collections::HashSet;

use machinery::Status;
use machinery::bounded_text::{MAX_LISTED, MAX_QUOTED_BYTES, truncated};
use rand::Rng;
use serde_json::{Map, Value};

pub(crate) const ORPHAN_FINALIZER: &str = "orphan";
pub(crate) const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

const MAX_GENERATED_BASE_LENGTH: usize = 58;
const GENERATED_SUFFIX_LENGTH: usize = 5;
/// Without vowels and ambiguous characters, so that no words are formed.
const GENERATED_SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Fields that only the server sets.
const SERVER_OWNED_FIELDS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
];

/// The metadata of an object, created when absent. Fails if it is not an object.
pub(crate) fn metadata_mut(value: &mut Value) -> Result<&mut Map<String, Value>, Status> {
    let Some(object) = value.as_object_mut() else {
        return Err(Status::bad_request(
            "the object provided is unrecognized (must be of type Object)",
        ));
    };
    let slot = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
        .ok_or_else(|| Status::bad_request("metadata must be an object"))
}

/// Takes `metadata.managedFields` out of an object. A value that is not a list stays, for the
/// decoder to refuse.
pub(crate) fn take_managed_fields(value: &mut Value) -> Result<Option<Value>, Status> {
    let meta = metadata_mut(value)?;
    match meta.get("managedFields") {
        Some(Value::Array(_)) => Ok(meta.remove("managedFields")),
        _ => Ok(None),
    }
}

/// A string field of the metadata; empty if absent or of another type.
pub(crate) fn metadata_string<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or("")
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(value: &Value) -> impl Iterator<Item = &str> {
    value["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(value: &Value) -> bool {
    !value["metadata"]["deletionTimestamp"].is_null()
}

/// `metadata.deletionGracePeriodSeconds`; 0 if absent.
pub(crate) fn deletion_grace_period(value: &Value) -> i64 {
    let seconds = &value["metadata"]["deletionGracePeriodSeconds"];
    seconds.as_i64().unwrap_or(0)
}

/// Removes fields that only the server sets, and empty fields.
pub(crate) fn remove_server_owned_fields(meta: &mut Map<String, Value>) {
    for field in SERVER_OWNED_FIELDS {
        meta.remove(field);
    }
    remove_empty_fields(meta);
}

/// Removes empty optional fields, which a typed encoder omits.
pub(crate) fn remove_empty_fields(meta: &mut Map<String, Value>) {
    meta.retain(|key, v| match v {
        Value::Null => false,
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => !o.is_empty(),
        Value::Number(_) | Value::Bool(_) => key != "selfLink",
    });
}

/// Sets uid, creation timestamp and generation of a new object.
pub(crate) fn fill_system_fields(meta: &mut Map<String, Value>, now: &str, with_generation: bool) {
    meta.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    meta.insert("creationTimestamp".into(), now.into());
    if with_generation {
        meta.insert("generation".into(), 1.into());
    }
}

/// Generates a name from `generateName`: the base cut to 58 bytes, and five characters.
pub(crate) fn generate_name(base: &str) -> String {
    let mut end = base.len().min(MAX_GENERATED_BASE_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = String::with_capacity(end + GENERATED_SUFFIX_LENGTH);
    name.push_str(&base[..end]);
    let mut rng = rand::rng();
    for _ in 0..GENERATED_SUFFIX_LENGTH {
        let index = rng.random_range(0..GENERATED_SUFFIX_ALPHABET.len());
        name.push(char::from(GENERATED_SUFFIX_ALPHABET[index]));
    }
    name
}

/// Copies fields that an update may omit or must not change from the stored object (B3.5).
/// Differences that are errors are left for validation.
pub(crate) fn copy_from_old(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    for field in ["managedFields", "selfLink", "resourceVersion"] {
        new.remove(field);
    }
    for field in ["generation", "creationTimestamp"] {
        match old.get(field) {
            Some(v) => new.insert(field.into(), v.clone()),
            None => new.remove(field),
        };
    }
    if let Some(timestamp) = old.get("deletionTimestamp") {
        new.insert("deletionTimestamp".into(), timestamp.clone());
    }
    let grace_period = "deletionGracePeriodSeconds";
    if let Some(seconds) = old.get(grace_period)
        && new.get(grace_period).is_none_or(Value::is_null)
    {
        new.insert(grace_period.into(), seconds.clone());
    }
    for field in ["uid", "name", "namespace", "generateName"] {
        let empty = new
            .get(field)
            .and_then(Value::as_str)
            .is_none_or(str::is_empty);
        if empty && let Some(v) = old.get(field) {
            new.insert(field.into(), v.clone());
        }
    }
    remove_empty_fields(new);
}

/// Increments `generation` if it is set.
pub(crate) fn increment_generation(value: &mut Value) {
    if let Some(g) = value["metadata"]["generation"].as_i64()
        && g > 0
    {
        value["metadata"]["generation"] = (g + 1).into();
    }
}

/// Warnings for finalizers without a domain, which are likely to clash.
pub(crate) fn finalizer_warnings(value: &Value) -> Vec<String> {
    const STANDARD: [&str; 3] = [ORPHAN_FINALIZER, FOREGROUND_FINALIZER, "kubernetes"];
    finalizers(value)
        .filter(|f| !f.contains('/') && !STANDARD.contains(f))
        .map(|f| {
            let path = if f.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            format!("metadata.finalizers: {f:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers")
        })
        .collect()
}

/// Removes owner references that are there already; returns the warning for them.
pub(crate) fn remove_repeated_owners(value: &mut Value) -> Option<String> {
    let owners = value.pointer_mut("/metadata/ownerReferences")?;
    let owners = owners.as_array_mut()?;
    let mut distinct = HashSet::new();
    let mut repeated = Vec::new();
    owners.retain(|owner| {
        let is_first = distinct.insert(owner.to_string());
        if !is_first {
            let uid = owner["uid"].as_str().unwrap_or_default();
            repeated.push(truncated(uid, MAX_QUOTED_BYTES).into_owned());
        }
        is_first
    });
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated[..repeated.len().min(MAX_LISTED)].join(",")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_names_keep_58_bytes_of_their_base() {
        let name = generate_name(&"é".repeat(40));
        assert_eq!(name.chars().filter(|c| *c == 'é').count(), 29);
        assert_eq!(generate_name("web-").len(), 9);
    }

    #[test]
    fn an_update_inherits_fields_that_it_omits() {
        let old = json!({"name": "a", "uid": "1", "generation": 3, "creationTimestamp": "t", "deletionTimestamp": "d"});
        let mut new = json!({"name": "a", "generation": 9, "labels": {}, "resourceVersion": "4", "managedFields": []});
        copy_from_old(new.as_object_mut().unwrap(), old.as_object().unwrap());
        assert_eq!(new, old);
    }
}
