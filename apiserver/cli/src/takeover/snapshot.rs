//! All objects of the groups that are taken over, read through the host, and their comparison.

use std::collections::{BTreeMap, BTreeSet};

use aggregation::{MovedResource, list_resource};
use anyhow::Context;
use client::{Api, ResourcePath};
use karmada_api::resources::CLUSTERS;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::summary::first_lines;

/// Groups whose objects the host keeps in a server that does not ask the host's webhooks, so that
/// they may change while writes are frozen.
const UNFROZEN_GROUPS: [&str; 2] = ["cluster.karmada.io", "search.karmada.io"];
/// The objects of a resource whose versions are compared: two stores may have one in common.
const PROBED_OBJECTS: usize = 3;

/// The objects of one resource, by `namespace/name` or name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ResourceSnapshot {
    pub(super) resource: MovedResource,
    pub(super) objects: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Snapshot {
    pub(super) resources: Vec<ResourceSnapshot>,
}

/// `namespace/name`, or the name of a cluster-scoped object.
pub(super) fn object_key(object: &Value) -> String {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    match meta["namespace"].as_str() {
        None | Some("") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

/// The namespace and the name of an object.
pub(super) fn object_names(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// An object as it can be created again.
pub(super) fn without_identity(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            meta.remove(field);
        }
    }
    object
}

impl ResourceSnapshot {
    /// Whether nobody changes the objects while writes are frozen.
    pub(super) fn is_frozen(&self) -> bool {
        !UNFROZEN_GROUPS.contains(&self.resource.group.as_str())
    }

    /// An object as both sides must have it.
    fn comparable(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
            meta.remove("selfLink");
            if !self.is_frozen() {
                meta.remove("managedFields");
            }
        }
        if !self.is_frozen()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        object
    }
}

impl Snapshot {
    /// Reads the objects of all resources through the host.
    pub(super) async fn read(host: &dyn Api, resources: &[MovedResource]) -> anyhow::Result<Self> {
        let mut snapshot = Self::default();
        for resource in resources {
            let gvr = resource.gvr();
            let objects = list_resource(host, &gvr, &resource.kind).await;
            let objects = objects.with_context(|| format!("{gvr} cannot be listed"))?;
            let objects = objects.unwrap_or_default().into_iter();
            snapshot.resources.push(ResourceSnapshot {
                resource: resource.clone(),
                objects: objects.map(|o| (object_key(&o), o)).collect(),
            });
        }
        Ok(snapshot)
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.resources.iter().map(|r| r.objects.len()).sum()
    }

    pub(super) fn of(&self, resource: &MovedResource) -> Option<&ResourceSnapshot> {
        let gvr = resource.gvr();
        self.resources.iter().find(|r| r.resource.gvr() == gvr)
    }

    /// The members whose agents read their Works.
    pub(super) fn pull_clusters(&self) -> BTreeSet<String> {
        let clusters = self.resources.iter().filter(|r| {
            let resource = &r.resource;
            (&*resource.group, &*resource.resource) == (&*CLUSTERS.group, &*CLUSTERS.resource)
        });
        let objects = clusters.flat_map(|r| r.objects.values());
        let pull = objects.filter(|cluster| cluster["spec"]["syncMode"] == "Pull");
        pull.map(|cluster| object_names(cluster).1.to_owned())
            .collect()
    }

    /// The objects that differ in more than their `resourceVersion`, one line each.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let empty = BTreeMap::new();
        let mut lines = Vec::new();
        for one in &self.resources {
            let others = other.of(&one.resource).map_or(&empty, |r| &r.objects);
            let keys = one.objects.keys().chain(others.keys());
            let keys: BTreeSet<&String> = keys.collect();
            for key in keys {
                let name = format!("{} {key}", one.resource.gvr());
                match (one.objects.get(key), others.get(key)) {
                    (Some(a), Some(b)) if one.comparable(a) == one.comparable(b) => {}
                    (Some(_), Some(_)) => lines.push(format!("{name} differs")),
                    (Some(_), None) => lines.push(format!("{name} is missing")),
                    (None, _) => lines.push(format!("{name} is additional")),
                }
            }
        }
        first_lines(lines)
    }

    /// The objects of both that differ in more than their `resourceVersion`, as the other has them.
    pub(super) fn changed_in(&self, other: &Self) -> Self {
        let resources = self.resources.iter().filter_map(|one| {
            let others = other.of(&one.resource)?.objects.iter();
            let changed = others.filter(|(key, object)| {
                let before = one.objects.get(*key);
                before.is_some_and(|before| one.comparable(before) != one.comparable(object))
            });
            Some(ResourceSnapshot {
                resource: one.resource.clone(),
                objects: changed.map(|(k, o)| (k.clone(), o.clone())).collect(),
            })
        });
        Self {
            resources: resources.collect(),
        }
    }

    /// Puts objects in the place of those that the snapshot has of the same name.
    pub(super) fn replace(&mut self, objects: &Self) {
        for resource in &mut self.resources {
            let changed = objects.of(&resource.resource).into_iter();
            let changed = changed.flat_map(|r| r.objects.iter());
            let changed = changed.map(|(key, object)| (key.clone(), object.clone()));
            resource.objects.extend(changed);
        }
    }

    /// Whether the host answers for every resource from another store than the one this snapshot
    /// was read from: versions of objects that nobody may write tell them apart.
    pub(super) async fn is_superseded(&self, host: &dyn Api) -> anyhow::Result<bool> {
        for resource in self.resources.iter().filter(|r| r.is_frozen()) {
            let mut is_same = false;
            for object in resource.objects.values().take(PROBED_OBJECTS) {
                let gvr = resource.resource.gvr();
                let (namespace, name) = object_names(object);
                let at = ResourcePath::object(&gvr, namespace, name);
                let current = client::ignore_not_found(host.get(at).await)?;
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                is_same = match current {
                    Some(current) => version(&current.value()?) == version(object),
                    None => false,
                };
                if !is_same {
                    break;
                }
            }
            if is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A snapshot of objects of one resource.
#[cfg(test)]
pub(super) fn test_snapshot(group: &str, objects: &[Value]) -> Snapshot {
    let resource = MovedResource {
        group: group.into(),
        version: "v1alpha1".into(),
        resource: "works".into(),
        kind: "Work".into(),
        namespaced: true,
        objects: objects.len(),
    };
    let objects = objects.iter().map(|o| (object_key(o), o.clone()));
    Snapshot {
        resources: vec![ResourceSnapshot {
            resource,
            objects: objects.collect(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(group: &str, objects: Value) -> Snapshot {
        test_snapshot(group, objects.as_array().unwrap())
    }

    // proves: TKO-differs
    #[test]
    fn objects_are_compared_without_their_versions() {
        let object = |version: &str, status: u8| {
            json!({"metadata": {"namespace": "n", "name": "w", "uid": "u",
                "resourceVersion": version}, "status": status})
        };
        for (group, other, differences) in [
            ("work.karmada.io", json!([object("2", 1)]), 0),
            ("work.karmada.io", json!([object("1", 2)]), 1),
            ("work.karmada.io", json!([]), 1),
            // The status of a Cluster is written all the time.
            ("cluster.karmada.io", json!([object("2", 2)]), 0),
        ] {
            let one = snapshot(group, json!([object("1", 1)]));
            let lines = one.differences(&snapshot(group, other));
            assert_eq!(lines.len(), differences, "{group}: {lines:?}");
        }
    }
}
