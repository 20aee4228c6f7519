//! The fields of policies and other objects that name clusters, and their change.

use client::{Api, ListOptions, Patch, ResourcePath, WriteOptions};
use karmada_api::resources::{
    CLUSTER_OVERRIDES, CLUSTER_POLICIES, MULTI_CLUSTER_SERVICES, OVERRIDES, POLICIES, QUOTAS,
    REMEDIES, REPLICA_PREFERENCES, RESOURCE_REGISTRIES, TAINT_POLICIES,
};
use karmada_api::rollout::{CLUSTER_ROLLOUT_POLICIES, ROLLOUT_POLICIES};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::rename_error::{RenameError, host_error};

/// The resources that name clusters.
static NAMING_RESOURCES: [&Gvr; 12] = [
    &POLICIES,
    &CLUSTER_POLICIES,
    &OVERRIDES,
    &CLUSTER_OVERRIDES,
    &QUOTAS,
    &TAINT_POLICIES,
    &REMEDIES,
    &MULTI_CLUSTER_SERVICES,
    &RESOURCE_REGISTRIES,
    &REPLICA_PREFERENCES,
    &ROLLOUT_POLICIES,
    &CLUSTER_ROLLOUT_POLICIES,
];

/// The fields with lists of names, with one name, and with lists of objects that have a name.
const NAME_LISTS: [&str; 2] = ["clusterNames", "exclude"];
const NAME: &str = "clusterName";
const NAMED_LISTS: [&str; 2] = ["providerClusters", "consumerClusters"];

/// An object that names a cluster.
pub(super) struct NamingObject {
    resource: &'static Gvr,
    object: Object,
    /// Its `spec` with the new name, as a merge patch.
    spec: Value,
}

impl NamingObject {
    /// The resource and the key of the object.
    pub(super) fn text(&self) -> String {
        format!("{}/{}", self.resource.resource, self.object.meta().key())
    }

    /// Writes the new name, unless the object has changed meanwhile.
    pub(super) async fn write(&self, control: &dyn Api) -> Result<(), RenameError> {
        let patch = json!({
            "metadata": {"resourceVersion": self.object.revision().to_string()},
            "spec": self.spec,
        });
        let at = ResourcePath::of_object(self.resource, &self.object);
        let options = WriteOptions::default();
        let written = control.patch(at, Patch::Merge(patch), &options).await;
        written.map_err(host_error(format!("change {}", self.text())))?;
        Ok(())
    }
}

/// The objects that name a cluster, with the new name in its place.
pub(super) async fn list_naming(
    control: &dyn Api,
    old: &str,
    new: &str,
) -> Result<Vec<NamingObject>, RenameError> {
    let mut naming = Vec::new();
    for resource in NAMING_RESOURCES {
        let all = ResourcePath::collection(resource, "");
        let listed = control.list(all, &ListOptions::default()).await;
        let listed = match listed {
            // A control plane may not serve the resources of every family.
            Err(error) if error.is_not_found() => continue,
            listed => listed.map_err(host_error(format!("list the {}", resource.resource)))?,
        };
        for object in listed.items {
            let mut spec = object.value()?["spec"].take();
            let is_naming = match resource == &REPLICA_PREFERENCES {
                true => rename_key(&mut spec["clusters"], old, new),
                false => rename_in(&mut spec, old, new),
            };
            if is_naming {
                naming.push(NamingObject {
                    resource,
                    object,
                    spec,
                });
            }
        }
    }
    Ok(naming)
}

/// Replaces the name of a cluster in all fields that name clusters; returns whether there are any.
pub(super) fn rename_in(value: &mut Value, old: &str, new: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let mut is_changed = false;
            for (key, field) in fields {
                is_changed |= match field {
                    Value::Array(names) if NAME_LISTS.contains(&key.as_str()) => {
                        rename_in_list(names, old, new)
                    }
                    Value::Array(clusters) if NAMED_LISTS.contains(&key.as_str()) => {
                        let names = clusters.iter_mut().filter_map(|c| c.get_mut("name"));
                        names.fold(false, |changed, name| changed | rename(name, old, new))
                    }
                    field if key == NAME => rename(field, old, new),
                    field => rename_in(field, old, new),
                };
            }
            is_changed
        }
        Value::Array(elements) => elements.iter_mut().fold(false, |changed, element| {
            changed | rename_in(element, old, new)
        }),
        _ => false,
    }
}

/// Moves the entry of a cluster to its new name, and marks the old one as removed, as merge patches
/// do. An entry that the new name has already stays.
fn rename_key(clusters: &mut Value, old: &str, new: &str) -> bool {
    let Some(clusters) = clusters.as_object_mut() else {
        return false;
    };
    let Some(entry) = clusters.get_mut(old) else {
        return false;
    };
    let entry = entry.take();
    clusters.entry(new).or_insert(entry);
    true
}

fn rename(name: &mut Value, old: &str, new: &str) -> bool {
    let is_old = name.as_str() == Some(old);
    if is_old {
        *name = new.into();
    }
    is_old
}

/// A list that has the new name already only loses the old one.
fn rename_in_list(names: &mut Vec<Value>, old: &str, new: &str) -> bool {
    if !names.iter().any(|name| name == old) {
        return false;
    }
    if names.iter().any(|name| name == new) {
        names.retain(|name| name != old);
    } else {
        for name in names {
            rename(name, old, new);
        }
    }
    true
}
