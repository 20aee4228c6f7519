//! Compares two versions of an object apart from their status.

use std::hash::{DefaultHasher, Hash, Hasher};

use machinery::Object;
use serde_json::{Map, Value};

/// Whether two versions differ in nothing but the status and server-managed fields.
pub fn is_equal_except_status(old: &Object, new: &Object) -> bool {
    let (before, after) = (old.meta(), new.meta());
    if before.deleting != after.deleting || before.labels != after.labels {
        return false;
    }
    if after.generation > 0 {
        return before.generation == after.generation && old.has_same_annotations(new);
    }
    match (old.value(), new.value()) {
        (Ok(old), Ok(new)) => without_status(old) == without_status(new),
        _ => false,
    }
}

/// A hash of everything that [`is_equal_except_status`] compares, and of the uid.
pub fn hash_without_status(object: &Object) -> u64 {
    let head = object.meta();
    let mut hasher = DefaultHasher::new();
    (&head.uid, head.deleting, &head.labels, head.generation).hash(&mut hasher);
    if head.generation > 0 {
        object.annotations().hash(&mut hasher);
    } else if let Ok(value) = object.value() {
        without_status(value).to_string().hash(&mut hasher);
    }
    hasher.finish()
}

fn without_status(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

/// Whether two versions are equal apart from what Karmada's controllers write
/// (`ResourceChangeByKarmada` of `pkg/util/eventfilter`).
pub fn is_changed_by_karmada(old: &Object, new: &Object) -> bool {
    let (Ok(old), Ok(new)) = (old.value(), new.value()) else {
        return false;
    };
    without_karmada_metadata(old) == without_karmada_metadata(new)
}

fn without_karmada_metadata(object: Value) -> Value {
    let mut object = without_status(object);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("generation");
        for map in ["labels", "annotations"] {
            if let Some(Value::Object(entries)) = metadata.get_mut(map) {
                entries.retain(|key, _| {
                    !key.contains(".karmada.io")
                        || key == karmada_api::well_known_keys::SKIP_AUTO_PROPAGATION
                });
                if entries.is_empty() {
                    metadata.remove(map);
                }
            }
        }
    }
    object
}

/// Sets a label or an annotation of an object in JSON.
pub fn set_metadata_entry(object: &mut Value, map: &str, key: &str, value: &str) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let metadata = fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        let entries = metadata.entry(map).or_insert(Value::Null);
        if !entries.is_object() {
            *entries = Value::Object(Map::new());
        }
        if let Some(entries) = entries.as_object_mut() {
            entries.insert(key.to_owned(), value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::well_known_keys::POLICY_ID;
    use serde_json::json;

    fn check(old: Value, new: Value, status_only: bool, by_karmada: bool) {
        let (a, b) = (
            Object::from_value(&old).unwrap(),
            Object::from_value(&new).unwrap(),
        );
        assert_eq!(is_equal_except_status(&a, &b), status_only, "{old} {new}");
        assert_eq!(is_changed_by_karmada(&a, &b), by_karmada, "{old} {new}");
        assert_eq!(
            hash_without_status(&a) == hash_without_status(&b),
            status_only,
            "{old} {new}"
        );
    }

    // proves: DET-changes
    #[test]
    fn changes_are_distinguished() {
        let base =
            json!({"metadata": {"name": "a", "generation": 1, "resourceVersion": "1"}, "spec": 1});
        let with = |path: &str, value: Value| {
            let mut copy = base.clone();
            copy["metadata"]["resourceVersion"] = "2".into();
            match path.split_once('/') {
                Some((outer, inner)) => copy[outer][inner] = value,
                None => copy[path] = value,
            }
            copy
        };
        check(base.clone(), with("status", json!(1)), true, true);
        check(
            base.clone(),
            with("metadata/labels", json!({POLICY_ID: "x"})),
            false,
            true,
        );
        check(
            base.clone(),
            with("metadata/annotations", json!({"a": "x"})),
            false,
            false,
        );
        check(
            base.clone(),
            with("metadata/generation", json!(2)),
            false,
            true,
        );
        let plain = json!({"metadata": {"name": "a"}, "data": {"a": "b"}});
        let mut other = plain.clone();
        other["metadata"]["managedFields"] = json!([]);
        check(plain.clone(), other.clone(), true, true);
        other["data"] = json!({});
        check(plain, other, false, false);
    }
}
