//! The form in which the fleet view shows an object of a member, or of the control plane. What a member
//! sends is untrusted: its kind and cluster are the cache's, and an object with an impossible name, or one
//! that names a cluster, is not cached.

use std::collections::BTreeMap;

use bytes::Bytes;
use karmada_api::well_known_keys::{CACHED_FROM_CLUSTER, MANAGED, MANAGED_VALUE, TEMPLATE_UID};
use machinery::names::validate_path_segment_name;
use machinery::{Gvk, Object};
use members::{CONTROL_PLANE, fleet_uid};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

/// The longest name of an object or a namespace.
const MAX_NAME_BYTES: usize = 253;
/// The longest uid of a template, which is a UUID.
const MAX_UID_BYTES: usize = 36;
/// The most owners that are read; Kubernetes' objects have one.
const MAX_OWNERS: usize = 64;

type RawFields<'a> = BTreeMap<String, &'a RawValue>;
type Texts = BTreeMap<String, String>;

/// The encoded object: with its cluster as annotation and label, with uids that are unique among the
/// members, and owned by its template if it is a copy of one. Other values are copied as they are. An
/// object of the control plane has nothing of that.
pub(crate) fn fleet_value(object: &Object, cluster: &str, kind: &Gvk) -> Result<Bytes, String> {
    check_name(object)?;
    encode(object, cluster, kind).map_err(|error| error.to_string())
}

fn check_name(object: &Object) -> Result<(), String> {
    let namespace = object.namespace();
    let names = [
        Some(object.name()),
        Some(namespace).filter(|n| !n.is_empty()),
    ];
    for name in names.into_iter().flatten() {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(format!("a name has {} bytes", name.len()));
        }
        validate_path_segment_name(name).map_err(|reason| format!("a name {reason}"))?;
        // A member with an object `NAME@CLUSTER` would direct the next write to another cluster.
        if name.contains('@') {
            return Err("a name contains '@', which the name of a cluster follows".to_owned());
        }
    }
    Ok(())
}

fn texts(fields: &RawFields<'_>, key: &str) -> Result<Texts, serde_json::Error> {
    let raw = fields.get(key).map_or("null", |raw| raw.get());
    let texts: Option<Texts> = machinery::json::from_str(raw)?;
    Ok(texts.unwrap_or_default())
}

fn encode(object: &Object, cluster: &str, kind: &Gvk) -> Result<Bytes, serde_json::Error> {
    let bytes = object.bytes();
    let mut fields: RawFields<'_> = machinery::json::from_slice(&bytes)?;
    let metadata = fields.get("metadata").map_or("{}", |raw| raw.get());
    let mut metadata: RawFields<'_> = machinery::json::from_str(metadata)?;
    let mut annotations = texts(&metadata, "annotations")?;
    let mut labels = texts(&metadata, "labels")?;
    let owners = owners(object, cluster, kind, (&labels, &annotations), &metadata)?;
    let is_of_member = cluster != CONTROL_PLANE;
    for texts in [&mut annotations, &mut labels] {
        match is_of_member {
            true => texts.insert(CACHED_FROM_CLUSTER.to_owned(), cluster.to_owned()),
            false => texts.remove(CACHED_FROM_CLUSTER),
        };
    }
    let uid = to_raw_value(&fleet_uid(cluster, object.uid()))?;
    let (annotations, labels) = (to_raw_value(&annotations)?, to_raw_value(&labels)?);
    let texts = [("annotations", &annotations), ("labels", &labels)];
    let identity = [("ownerReferences", &owners), ("uid", &uid)];
    let identity = identity.iter().filter(|_| is_of_member);
    for (key, value) in texts.iter().chain(identity) {
        metadata.insert((*key).to_owned(), value);
    }
    metadata
        .retain(|key, value| !(matches!(&**key, "annotations" | "labels") && value.get() == "{}"));
    metadata.remove("resourceVersion");
    let metadata = to_raw_value(&metadata)?;
    let (api_version, kind) = (
        to_raw_value(&kind.api_version())?,
        to_raw_value(&kind.kind)?,
    );
    fields.insert("metadata".to_owned(), &metadata);
    fields.insert("apiVersion".to_owned(), &api_version);
    fields.insert("kind".to_owned(), &kind);
    Ok(serde_json::to_vec(&fields)?.into())
}

/// The references to the owners, with the uids under which the fleet view shows them. A copy of a
/// template has that for its owner.
fn owners(
    object: &Object,
    cluster: &str,
    kind: &Gvk,
    (labels, annotations): (&Texts, &Texts),
    metadata: &RawFields<'_>,
) -> Result<Box<RawValue>, serde_json::Error> {
    let raw = metadata.get("ownerReferences").map_or("null", |r| r.get());
    let owners: Option<Vec<RawFields<'_>>> = machinery::json::from_str(raw)?;
    let mut references = Vec::new();
    for mut owner in owners.unwrap_or_default().into_iter().take(MAX_OWNERS) {
        let uid = owner.get("uid").map_or("\"\"", |raw| raw.get());
        let uid: String = machinery::json::from_str(uid)?;
        let uid = to_raw_value(&fleet_uid(cluster, &uid))?;
        owner.insert("uid".to_owned(), &uid);
        references.push(to_raw_value(&owner)?);
    }
    let template = annotations.get(TEMPLATE_UID);
    let template = template.filter(|uid| !uid.is_empty() && uid.len() <= MAX_UID_BYTES);
    let is_copy = labels
        .get(MANAGED)
        .is_some_and(|value| value == MANAGED_VALUE);
    if let Some(uid) = template.filter(|_| is_copy) {
        references.push(to_raw_value(&json!({"apiVersion": kind.api_version(),
            "kind": kind.kind, "name": object.name(), "uid": uid}))?);
    }
    to_raw_value(&references)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shown(value: &Value) -> Result<Value, String> {
        let object = Object::from_value(value).unwrap();
        let stored = fleet_value(&object, "m1", &Gvk::from_static("apps", "v1", "ReplicaSet"))?;
        Ok(Object::from_stored(&stored, 7).unwrap().value().unwrap())
    }

    // proves: FLV-object, FLV-owners
    #[test]
    fn objects_are_shown_with_their_cluster_and_unique_uids() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "o",
            "controller": true});
        let value = json!({"apiVersion": "lies/v1", "kind": "Lie", "spec": {"a": [1, 2.50]},
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5",
                "ownerReferences": [owner],
                "labels": {"x": "y", CACHED_FROM_CLUSTER: "m2"},
                "annotations": {CACHED_FROM_CLUSTER: "m2"}}});
        let object = shown(&value).unwrap();
        assert_eq!(
            object,
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"a": [1, 2.50]},
                "metadata": {"name": "a", "namespace": "n", "uid": fleet_uid("m1", "u"),
                    "resourceVersion": "7",
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d",
                        "uid": fleet_uid("m1", "o"), "controller": true}],
                    "labels": {"x": "y", CACHED_FROM_CLUSTER: "m1"},
                    "annotations": {CACHED_FROM_CLUSTER: "m1"}}})
        );
    }

    // proves: FLV-owners
    #[test]
    fn a_copy_is_owned_by_its_template() {
        let copy = |managed: &str, uid: &str| {
            let object = shown(&json!({"metadata": {"name": "a", "uid": "u",
                "labels": {MANAGED: managed}, "annotations": {TEMPLATE_UID: uid}}}));
            object.unwrap()["metadata"]["ownerReferences"].clone()
        };
        assert_eq!(
            copy("true", "t"),
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "t"}])
        );
        for (managed, uid) in [("false", "t"), ("true", ""), ("true", &*"t".repeat(37))] {
            assert_eq!(copy(managed, uid), json!([]), "{managed} {uid}");
        }
    }

    // proves: FLV-untrusted
    #[test]
    fn objects_with_impossible_names_are_not_cached() {
        for metadata in [
            json!({"name": ""}),
            json!({"name": "a/b"}),
            json!({"name": ".."}),
            json!({"name": "a@m2"}),
            json!({"name": "system:a@b.c"}),
            json!({"name": "a", "namespace": "n@m2"}),
            json!({"name": "a", "namespace": "../x"}),
            json!({"name": "a".repeat(254)}),
            json!({"name": "a", "annotations": [1]}),
            json!({"name": "a", "ownerReferences": {"a": 1}}),
        ] {
            let Ok(object) = Object::from_value(&json!({ "metadata": metadata })) else {
                continue;
            };
            let kind = Gvk::from_static("", "v1", "Pod");
            assert!(fleet_value(&object, "m1", &kind).is_err(), "{metadata}");
        }
    }
}
