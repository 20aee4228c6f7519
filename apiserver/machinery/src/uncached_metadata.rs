//! Reads the fields of `metadata` that no [`ObjectMeta`](crate::ObjectMeta) has: few need them,
//! and annotations may be large.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::object::Object;
use crate::{json, time};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UncachedObjectMeta<'a> {
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
    #[serde(borrow)]
    creation_timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    deletion_timestamp: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ObjectUncachedMetaJson<'a> {
    #[serde(borrow)]
    metadata: UncachedObjectMeta<'a>,
}

/// The value of a field; the default if it is absent or of another type than Kubernetes gives it.
fn parse_or_default<T: Default + DeserializeOwned>(field: Option<&RawValue>) -> T {
    let parsed = field.map(|raw| json::from_str(raw.get()));
    parsed.and_then(Result::ok).unwrap_or_default()
}

fn parse_time(field: Option<&RawValue>) -> Option<Timestamp> {
    time::parse(&parse_or_default::<String>(field)).ok()
}

impl Object {
    /// `metadata.annotations`; each call parses their text, and nothing else of the object.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        json::from_slice(&self.annotations_json()).unwrap_or_default()
    }

    /// Whether both objects have the same annotations. The same text needs no parser.
    pub fn has_same_annotations(&self, other: &Self) -> bool {
        self.annotations_json() == other.annotations_json()
            || self.annotations() == other.annotations()
    }

    /// The value of an annotation; each call parses the text of all annotations.
    pub fn annotation(&self, key: &str) -> Option<String> {
        self.annotations().remove(key)
    }

    /// `metadata.finalizers`, parsed at each call.
    pub fn finalizers(&self) -> Vec<String> {
        let bytes = self.bytes();
        parse_or_default(uncached_meta(&bytes).finalizers)
    }

    /// `metadata.creationTimestamp`, parsed at each call.
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        let bytes = self.bytes();
        parse_time(uncached_meta(&bytes).creation_timestamp)
    }

    /// `metadata.deletionTimestamp`, parsed at each call: the end of the grace period.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        let bytes = self.bytes();
        parse_time(uncached_meta(&bytes).deletion_timestamp)
    }
}

fn uncached_meta(object: &[u8]) -> UncachedObjectMeta<'_> {
    let parsed = json::from_slice::<ObjectUncachedMetaJson<'_>>(object);
    parsed.map(|object| object.metadata).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_metadata_is_read_on_demand() {
        let object = Object::from_stored(
            br#"{"metadata":{"name":"a","annotations":{"k":"v"},"finalizers":["f"],"ownerReferences":[{"uid":"u"}],"creationTimestamp":"2026-01-02T03:04:05Z","deletionTimestamp":"2026-01-02T03:05:05Z"}}"#,
            1,
        );
        let object = object.unwrap();
        assert_eq!(object.annotations()["k"], "v");
        assert_eq!(object.annotation("k").as_deref(), Some("v"));
        assert_eq!(object.finalizers(), ["f"]);
        assert_eq!(&*object.owner_references()[0].uid, "u");
        let created = object.creation_timestamp().unwrap();
        assert_eq!(created.to_string(), "2026-01-02T03:04:05Z");
        let deleted = object.deletion_timestamp().unwrap();
        assert_eq!(deleted.duration_since(created).as_secs(), 60);
        let bare = Object::from_stored(br#"{"metadata":{"annotations":null}}"#, 1).unwrap();
        assert!(bare.annotations().is_empty() && bare.finalizers().is_empty());
        assert_eq!(bare.creation_timestamp(), None);
        assert!(bare.has_same_annotations(&Object::from_json("{}".into()).unwrap()));
        let malformed = br#"{"metadata":{"annotations":{"k":1},"finalizers":["f"]}}"#;
        let malformed = Object::from_stored(malformed, 1).unwrap();
        assert!(malformed.annotations().is_empty());
        assert_eq!(malformed.finalizers(), ["f"]);
    }
    /// The annotations are read at their position, which every change of the bytes moves.
    #[test]
    fn the_position_of_the_annotations_follows_the_bytes() {
        for text in [
            r#"{"metadata":{"name":"a","annotations":{"k":"v"},"managedFields":[{"f":1}]},"s":1}"#,
            r#"{"metadata":{"managedFields":[{"f":1}],"annotations":{"k":"v"}},"s":1}"#,
            r#"{ "metadata" : { "annotations" : {"k":"v"} , "managedFields" : [ ] } }"#,
            r#"{"s":1,"metadata":{"annotations":{"k":"v"}}}"#,
            r#"{"metadata":{"annotations":{"k":"v"},"resourceVersion":"7"}}"#,
        ] {
            let stored = Object::from_stored(text.as_bytes(), 7).unwrap();
            let trimmed = Object::from_json_trimmed(text.as_bytes()).unwrap();
            let full = Object::from_json(text.into()).unwrap();
            for object in [stored, trimmed, full] {
                let renamed = object.with_resource_version("a long version").unwrap();
                let newer = object.with_revision(123_456).unwrap();
                let older = newer.with_revision(1).unwrap();
                let managed = object.clone().with_managed_fields(Some("[]")).unwrap();
                for version in [object, renamed, newer, older, managed] {
                    assert_eq!(version.annotation("k").as_deref(), Some("v"), "{text}");
                    assert_eq!(version.annotations().len(), 1);
                }
            }
        }
        let bare = Object::from_stored(br#"{"metadata":{"name":"a"}}"#, 123_456).unwrap();
        assert!(bare.with_revision(1).unwrap().annotations().is_empty());
    }
}
