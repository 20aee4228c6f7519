//! The form in which an object of a member is cached: with the annotation of its cluster, and
//! without `resourceVersion`, which the watch cache inserts where it is cheap to replace.

use std::collections::BTreeMap;

use bytes::Bytes;
use karmada_api::well_known_keys::CACHED_FROM_CLUSTER;
use machinery::Object;
use serde_json::value::{RawValue, to_raw_value};

type RawFields<'a> = BTreeMap<String, &'a RawValue>;

/// The encoded object with its origin. Values are copied as they are.
pub(crate) fn stored_value(object: &Object, cluster: &str) -> Result<Bytes, serde_json::Error> {
    let bytes = object.bytes();
    let mut fields: RawFields<'_> = machinery::json::from_slice(&bytes)?;
    let metadata = fields.get("metadata").map_or("{}", |raw| raw.get());
    let mut metadata: RawFields<'_> = machinery::json::from_str(metadata)?;
    let annotations = metadata.get("annotations").map(|raw| raw.get());
    let annotations: Option<BTreeMap<String, String>> =
        machinery::json::from_str(annotations.unwrap_or("null"))?;
    let mut annotations = annotations.unwrap_or_default();
    annotations.insert(CACHED_FROM_CLUSTER.to_owned(), cluster.to_owned());
    let annotations = to_raw_value(&annotations)?;
    metadata.insert("annotations".to_owned(), &annotations);
    metadata.remove("resourceVersion");
    let metadata = to_raw_value(&metadata)?;
    fields.insert("metadata".to_owned(), &metadata);
    Ok(serde_json::to_vec(&fields)?.into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn objects_are_cached_with_their_origin() {
        for (metadata, expected) in [
            (
                json!({"name": "a", "resourceVersion": "5", "annotations": {"x": "y\"\u{e9}"}}),
                json!({"name": "a", "resourceVersion": "7",
                    "annotations": {"x": "y\"\u{e9}", CACHED_FROM_CLUSTER: "m1"}}),
            ),
            (
                json!({"name": "a", "annotations": null}),
                json!({"name": "a", "resourceVersion": "7",
                    "annotations": {CACHED_FROM_CLUSTER: "m1"}}),
            ),
        ] {
            let mut value = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"a": [1, 2.50]}});
            value["metadata"] = metadata;
            let object = Object::from_value(&value).unwrap();
            let stored = stored_value(&object, "m1").unwrap();
            let cached = Object::from_stored(&stored, 7).unwrap();
            value["metadata"] = expected;
            assert_eq!(cached.value().unwrap(), value);
            let moved = cached.with_resource_version("x").unwrap();
            let moved: Value = machinery::json::from_slice(&moved.bytes()).unwrap();
            assert_eq!(moved["metadata"]["resourceVersion"], "x");
        }
        let broken = json!({"metadata": {"name": "a", "annotations": [1]}});
        assert!(stored_value(&Object::from_value(&broken).unwrap(), "m1").is_err());
    }
}
