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
    annotations: Option<&'a RawValue>,
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
    /// `metadata.annotations`, parsed at each call.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        parse_or_default(self.uncached_meta().annotations)
    }

    /// The value of an annotation, parsed at each call.
    pub fn annotation(&self, key: &str) -> Option<String> {
        self.annotations().remove(key)
    }

    /// `metadata.finalizers`, parsed at each call.
    pub fn finalizers(&self) -> Vec<String> {
        parse_or_default(self.uncached_meta().finalizers)
    }

    /// `metadata.creationTimestamp`, parsed at each call.
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        parse_time(self.uncached_meta().creation_timestamp)
    }

    /// `metadata.deletionTimestamp`, parsed at each call: the end of the grace period.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        parse_time(self.uncached_meta().deletion_timestamp)
    }

    fn uncached_meta(&self) -> UncachedObjectMeta<'_> {
        let parsed = json::from_slice::<ObjectUncachedMetaJson<'_>>(self.bytes());
        parsed.map(|object| object.metadata).unwrap_or_default()
    }
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
        let malformed = br#"{"metadata":{"annotations":{"k":1},"finalizers":["f"]}}"#;
        let malformed = Object::from_stored(malformed, 1).unwrap();
        assert!(malformed.annotations().is_empty());
        assert_eq!(malformed.finalizers(), ["f"]);
    }
}
