//! Compares which object a manifest is before and after a step that may change the manifest:
//! an override, or an operation of the interpreter.

use serde_json::Value;

/// The fields that say which object a manifest is, as JSON pointers.
pub const IDENTITY_FIELDS: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/namespace",
    "/metadata/name",
    "/metadata/generateName",
    UID_FIELD,
];
const UID_FIELD: &str = "/metadata/uid";
/// The longest part of a changed value that an error shows.
const MAX_SHOWN_CHARS: usize = 128;

/// The fields that identify the object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityFields {
    values: [Value; IDENTITY_FIELDS.len()],
}

/// A field in which a manifest has become another object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("which object this is must not change (from {before} to {after})")]
pub struct IdentityChange {
    /// A JSON pointer.
    pub path: &'static str,
    before: String,
    after: String,
}

impl IdentityFields {
    pub fn of(manifest: &Value) -> Self {
        Self {
            values: IDENTITY_FIELDS.map(|path| field(manifest, path).clone()),
        }
    }

    /// Fails if a manifest is another object than this one. A manifest may lose its uid: a copy
    /// in a member has one of its own.
    pub fn check(&self, manifest: &Value) -> Result<(), IdentityChange> {
        for (path, before) in IDENTITY_FIELDS.into_iter().zip(&self.values) {
            let after = field(manifest, path);
            let lost_uid = path == UID_FIELD && after.is_null();
            if after != before && !lost_uid {
                return Err(IdentityChange {
                    path,
                    before: shown(before),
                    after: shown(after),
                });
            }
        }
        Ok(())
    }
}

/// The value at a path; null if it is absent or empty.
fn field<'a>(manifest: &'a Value, path: &str) -> &'a Value {
    let value = manifest.pointer(path);
    value.filter(|v| *v != "").unwrap_or(&Value::Null)
}

fn shown(value: &Value) -> String {
    if value.is_null() {
        return "none".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_field_of_the_identity_is_compared() {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"l": "1"}}});
        let identity = IdentityFields::of(&manifest);
        let check = |path: &str, value: Value, expected: Option<&str>| {
            let (parent, key) = path.rsplit_once('/').unwrap();
            let mut changed = manifest.clone();
            changed.pointer_mut(parent).unwrap()[key] = value;
            let error = identity.check(&changed).err();
            assert_eq!(error.map(|change| change.path), expected, "{path}");
        };
        for path in IDENTITY_FIELDS {
            check(path, json!("other"), Some(path));
            check(path, json!(["a"]), Some(path));
            let present = manifest.pointer(path).is_some() && path != UID_FIELD;
            check(path, Value::Null, present.then_some(path));
            check(path, json!(""), present.then_some(path));
        }
        check("/data", json!({}), None);
        check("/metadata/labels", json!({}), None);
        check("/metadata", json!("text"), Some("/metadata/namespace"));
        for other in [json!({}), json!([]), Value::Null] {
            assert_eq!(identity.check(&other).unwrap_err().path, "/apiVersion");
        }
    }

    #[test]
    fn an_error_shows_a_bounded_part_of_a_value() {
        let identity = IdentityFields::of(&json!({"kind": "A"}));
        let change = identity.check(&json!({"kind": "ä".repeat(10_000)}));
        let text = change.unwrap_err().to_string();
        assert!(text.contains("from \"A\" to \"ää"), "{text}");
        assert!(text.chars().count() < 300);
        let error_text = identity.check(&json!({})).unwrap_err().to_string();
        assert!(error_text.ends_with("(from \"A\" to none)"), "{error_text}");
    }
}
