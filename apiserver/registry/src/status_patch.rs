//! Partial decoding of an object for a write of its status.
//!
//! Only metadata and status become JSON trees. The rest, mostly the spec and most of the
//! bytes, cannot change in such a write; it stays encoded and was validated when it was
//! written.

use std::collections::BTreeMap;

use bytes::Bytes;
use machinery::managed_fields_text::write_metadata;
use machinery::{FieldError, Status};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

const DECODED_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The encoded fields of an object.
pub(crate) struct EncodedTopLevelFields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> EncodedTopLevelFields<'a> {
    pub(crate) fn parse(object: &'a [u8]) -> Result<Self, Status> {
        let fields = machinery::json::from_slice(object).map_err(Status::internal)?;
        Ok(Self(fields))
    }

    /// Whether a patch changes only fields that are decoded here.
    pub(crate) fn covers_patch(patch: &Value) -> bool {
        let fields = patch.as_object();
        fields.is_some_and(|f| f.keys().all(|k| DECODED_FIELDS.contains(&k.as_str())))
    }

    pub(crate) fn to_tree(&self) -> Result<Value, Status> {
        let mut tree = Map::new();
        for part in DECODED_FIELDS {
            if let Some(raw) = self.0.get(part) {
                let value = machinery::json::from_str(raw.get()).map_err(Status::internal)?;
                tree.insert(part.to_owned(), value);
            }
        }
        Ok(Value::Object(tree))
    }

    /// Removes fields that defaulting added because they were not decoded.
    pub(crate) fn retain_decoded_fields(tree: &mut Value) {
        if let Some(fields) = tree.as_object_mut() {
            fields.retain(|k, _| DECODED_FIELDS.contains(&k.as_str()));
        }
    }

    /// Whether an error is about a decoded field.
    pub(crate) fn is_relevant_error(error: &FieldError) -> bool {
        let end = error.field.find(['.', '[']).unwrap_or(error.field.len());
        DECODED_FIELDS.contains(&&error.field[..end])
    }

    /// Encodes the object with the fields of `tree`, in order, and the text of its managers.
    pub(crate) fn encode(mut self, tree: &Value, managers: Option<&str>) -> Result<Bytes, Status> {
        for part in DECODED_FIELDS {
            self.0.remove(part);
        }
        let parts = tree.as_object().into_iter().flatten();
        let mut parts = parts
            .filter(|(k, _)| DECODED_FIELDS.contains(&k.as_str()))
            .peekable();
        let mut rest = self.0.into_iter().peekable();
        let mut out = vec![b'{'];
        loop {
            let part_first = match (parts.peek(), rest.peek()) {
                (None, None) => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((part, _)), Some((other, _))) => *part < other,
            };
            if out.len() > 1 {
                out.push(b',');
            }
            if part_first && let Some((key, value)) = parts.next() {
                write_key(&mut out, key)?;
                match key.as_str() {
                    "metadata" => write_metadata(&mut out, value, managers),
                    _ => serde_json::to_writer(&mut out, value),
                }
                .map_err(Status::internal)?;
            } else if let Some((key, raw)) = rest.next() {
                write_key(&mut out, &key)?;
                out.extend_from_slice(raw.get().as_bytes());
            }
        }
        out.push(b'}');
        Ok(out.into())
    }
}

fn write_key(out: &mut Vec<u8>, key: &str) -> Result<(), Status> {
    serde_json::to_writer(&mut *out, key).map_err(Status::internal)?;
    out.push(b':');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(stored: &Value, status: Option<Value>) {
        let encoded = serde_json::to_vec(stored).unwrap();
        let top_level_fields = EncodedTopLevelFields::parse(&encoded).unwrap();
        let mut tree = top_level_fields.to_tree().unwrap();
        let mut expected = stored.clone();
        match status {
            Some(status) => {
                tree["status"] = status.clone();
                expected["status"] = status;
            }
            None => {
                for value in [&mut tree, &mut expected] {
                    value.as_object_mut().unwrap().remove("status");
                }
            }
        }
        tree["spec"] = json!("added by defaults");
        EncodedTopLevelFields::retain_decoded_fields(&mut tree);
        assert_eq!(
            top_level_fields.encode(&tree, None).unwrap(),
            serde_json::to_vec(&expected).unwrap()
        );
    }

    #[test]
    fn only_metadata_and_status_are_replaced() {
        let meta = json!({"name": "a"});
        let stored = json!({"apiVersion": "v1", "kind": "X", "metadata": meta,
            "spec": {"a": [1, {"b": "ü\n"}]}, "status": {"old": 1}});
        check(&stored, Some(json!({"new": 2})));
        check(&stored, None);
        let body = json!({"aaa": 1, "metadata": meta, "zzz": {"x": null}});
        check(&body, Some(json!({})));
        check(&body, None);
    }

    #[test]
    fn patches_of_other_fields_are_not_covered() {
        for (patch, is_covered) in [
            (json!({"metadata": {"uid": "1"}, "status": {}}), true),
            (json!({"spec": {}, "status": {}}), false),
            (json!([]), false),
        ] {
            assert_eq!(
                EncodedTopLevelFields::covers_patch(&patch),
                is_covered,
                "{patch}"
            );
        }
    }

    #[test]
    fn errors_of_other_fields_are_ignored() {
        for (field, concerns) in [
            ("status.replicas", true),
            ("metadata.name", true),
            ("spec", false),
            ("statuses", false),
        ] {
            let error = FieldError::required(field, "");
            assert_eq!(
                EncodedTopLevelFields::is_relevant_error(&error),
                concerns,
                "{field}"
            );
        }
    }
}
