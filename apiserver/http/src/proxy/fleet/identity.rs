//! Restores the identity that an object has in its member, before the member gets a write of it that
//! was read in the fleet view.

use std::collections::BTreeMap;

use karmada_api::well_known_keys::{CACHED_FROM_CLUSTER, MANAGED, MANAGED_VALUE, TEMPLATE_UID};
use members::fleet_uid;
use serde::Deserialize;
use serde_json::Value;

use super::addressed_names::is_cluster_owner;

/// The identity of an object in its member.
#[derive(Debug, Default, Deserialize)]
pub(super) struct NativeIdentity {
    #[serde(default)]
    metadata: NativeMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NativeMetadata {
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<NativeOwner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NativeOwner {
    name: String,
    uid: String,
}

impl NativeIdentity {
    /// Whether the object is a copy of a template, which the control plane keeps as it is there.
    pub(super) fn is_copy(&self) -> bool {
        let managed = self.metadata.labels.get(MANAGED);
        managed.is_some_and(|value| value == MANAGED_VALUE)
    }

    /// Replaces the uids of the fleet view and the names of the fleet tree, and removes what they have
    /// added. Returns whether anything changed. Uids of other objects stay: the member judges them.
    pub(super) fn restore(&self, cluster: &str, value: &mut Value) -> bool {
        let mut changed = false;
        for parent in ["metadata", "preconditions"] {
            if let Some(uid) = value
                .get_mut(parent)
                .and_then(|fields| fields.get_mut("uid"))
            {
                changed |= replace_uid(cluster, uid, [self.metadata.uid.as_str()]);
            }
        }
        let metadata = value.get_mut("metadata");
        let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
            return changed;
        };
        if let Some(name) = metadata.get_mut("name") {
            changed |= replace_name(cluster, name, &self.metadata.name);
        }
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            changed |= labels.remove(CACHED_FROM_CLUSTER).is_some();
        }
        let owners = metadata.get_mut("ownerReferences");
        let Some(owners) = owners.and_then(Value::as_array_mut) else {
            return changed;
        };
        let template = self.metadata.annotations.get(TEMPLATE_UID);
        let native = &self.metadata.owner_references;
        let count = owners.len();
        owners.retain(|owner| {
            let is_native = native.iter().any(|n| owner["uid"] == n.uid.as_str());
            let is_template = template.is_some_and(|uid| owner["uid"] == uid.as_str());
            is_native || !is_template && !is_cluster_owner(owner, cluster)
        });
        changed |= owners.len() < count;
        for owner in owners {
            for n in native {
                let uid = owner.get_mut("uid");
                if !uid.is_some_and(|uid| replace_uid(cluster, uid, [n.uid.as_str()])) {
                    continue;
                }
                changed = true;
                if let Some(name) = owner.get_mut("name") {
                    replace_name(cluster, name, &n.name);
                }
            }
        }
        changed
    }
}

/// Replaces a name of the fleet tree by the one of the member for which it stands.
fn replace_name(cluster: &str, name: &mut Value, native: &str) -> bool {
    let shown = name.as_str().and_then(|name| name.strip_prefix(native));
    let is_shown = shown.and_then(|rest| rest.strip_prefix('@')) == Some(cluster);
    if is_shown {
        *name = native.into();
    }
    is_shown
}

/// Replaces a uid of the fleet view by the one of the member for which it stands.
fn replace_uid<'a>(
    cluster: &str,
    uid: &mut Value,
    native: impl IntoIterator<Item = &'a str>,
) -> bool {
    let mut native = native.into_iter();
    let original = native.find(|native| *uid == fleet_uid(cluster, native));
    match original {
        Some(original) => {
            *uid = original.into();
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: FLT-write-names
    #[test]
    fn names_of_the_tree_are_restored() {
        let native = json!({"metadata": {"name": "a", "uid": "u",
            "ownerReferences": [{"name": "o", "uid": "o"}]}});
        let identity: NativeIdentity = machinery::json::from_str(&native.to_string()).unwrap();
        let shown_owner = json!({"name": "o@m1", "uid": fleet_uid("m1", "o")});
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "name": "m1", "uid": "c"});
        let mut shown =
            json!({"metadata": {"name": "a@m1", "ownerReferences": [shown_owner, cluster]}});
        assert!(identity.restore("m1", &mut shown));
        assert_eq!(
            shown,
            json!({"metadata": {"name": "a", "ownerReferences": [{"name": "o", "uid": "o"}]}})
        );
        for name in ["a", "a@m2", "b@m1", "a@", "@m1"] {
            let mut other = json!({"metadata": {"name": name}});
            assert!(!identity.restore("m1", &mut other), "{name}");
        }
    }

    // proves: FLV-write-identity
    #[test]
    fn what_the_fleet_view_changes_is_restored() {
        let native = json!({"metadata": {"name": "a", "uid": "u", "labels": {MANAGED: "true"},
            "annotations": {TEMPLATE_UID: "t"}, "ownerReferences": [{"name": "o", "uid": "o"}]}});
        let identity: NativeIdentity = machinery::json::from_str(&native.to_string()).unwrap();
        assert!(identity.is_copy());
        let mut shown = json!({"metadata": {"uid": fleet_uid("m1", "u"),
            "labels": {"a": "b", CACHED_FROM_CLUSTER: "m1"},
            "ownerReferences": [{"uid": fleet_uid("m1", "o")}, {"uid": "t"}, {"uid": "new"}]}});
        assert!(identity.restore("m1", &mut shown));
        assert_eq!(
            shown,
            json!({"metadata": {"uid": "u", "labels": {"a": "b"},
                "ownerReferences": [{"uid": "o"}, {"uid": "new"}]}})
        );
        let mut options = json!({"preconditions": {"uid": fleet_uid("m1", "u")}});
        assert!(identity.restore("m1", &mut options));
        assert_eq!(options, json!({"preconditions": {"uid": "u"}}));
        // That of another cluster, or of an object that was replaced.
        for mut other in [
            json!({"preconditions": {"uid": fleet_uid("m2", "u")}}),
            json!([{"op": "remove"}]),
            json!({"spec": {}}),
        ] {
            assert!(!identity.restore("m1", &mut other), "{other}");
        }
    }
}
