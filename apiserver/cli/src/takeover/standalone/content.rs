//! Reads everything of a Karmada that moves, and stores it in memory as a standalone Flotilla does.
//!
//! definitions ──► the store serves their kinds ──► discovery ──► resources, each of which is
//! imported, made by servers, left by the user, or refused if it has objects

use std::collections::{BTreeMap, BTreeSet};

use aggregation::{MovedResource, StandaloneStore, list_resource};
use anyhow::{Context, ensure};
use client::Api;
use machinery::Gvr;
use machinery::names::join_group;
use serde_json::Value;

use super::left_references::left_references;
use super::server_objects;
use crate::takeover::snapshot::{ResourceSnapshot, Snapshot, object_key, object_names};
use crate::takeover::summary::first_lines;

static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
/// The group suffix of metrics, which nobody stores.
const METRICS: &str = "metrics.k8s.io";

/// The suffix of Karmada's own groups.
const KARMADA_GROUPS: &str = ".karmada.io";

/// How a Karmada is read.
pub(super) struct ReadOptions<'a> {
    /// Whether fields that Flotilla does not know are dropped.
    pub(super) drops_unknown_fields: bool,
    /// Resources that stay where they are, as `RESOURCE.GROUP`.
    pub(super) left: &'a [String],
}

/// The content of a standalone Flotilla, and the objects of Karmada that it was made of.
pub(super) struct MovedContent {
    pub(super) store: StandaloneStore,
    pub(super) snapshot: Snapshot,
    pub(super) notes: Vec<String>,
    /// Objects and resources that cannot be moved.
    pub(super) errors: Vec<String>,
    /// The versions in which definitions store, by group and resource.
    custom_versions: BTreeMap<(String, String), String>,
}

/// A resource with stored objects in the versions that Karmada serves.
struct ListedResource {
    group: String,
    resource: String,
    kind: String,
    versions: Vec<String>,
}

impl MovedContent {
    /// Reads a Karmada. What cannot be moved is an error of the content.
    pub(super) async fn read(host: &dyn Api, options: &ReadOptions<'_>) -> anyhow::Result<Self> {
        let mut content = Self {
            store: StandaloneStore::new(options.drops_unknown_fields)?,
            snapshot: Snapshot::default(),
            notes: Vec::new(),
            errors: Vec::new(),
            custom_versions: BTreeMap::new(),
        };
        content.read_definitions(host).await?;
        let resources = content.discover(host).await?;
        let names: BTreeSet<String> = resources.iter().map(ListedResource::name).collect();
        for left in options.left {
            ensure!(
                names.contains(left),
                "--leave {left}: Karmada serves no such resource; it must be RESOURCE.GROUP"
            );
        }
        for resource in &resources {
            content.read_resource(host, resource, options).await?;
        }
        let kinds = resources.into_iter().map(|r| (r.group, r.kind)).collect();
        content
            .errors
            .extend(left_references(&content.snapshot, &kinds));
        Ok(content)
    }

    /// The definitions come first: their kinds are served when they are stored. Karmada's own are of
    /// kinds that are built in here.
    async fn read_definitions(&mut self, host: &dyn Api) -> anyhow::Result<()> {
        let kind = "CustomResourceDefinition";
        let listed = list_resource(host, &DEFINITIONS, kind).await;
        let mut definitions = listed.context("definitions")?.unwrap_or_default();
        definitions.retain(|definition| {
            let (group, resource) = defined_names(definition);
            let is_own = group.ends_with(KARMADA_GROUPS);
            !is_own || self.store.built_in(group, resource).is_none()
        });
        for definition in &definitions {
            let (group, resource) = defined_names(definition);
            let versions = definition["spec"]["versions"].as_array();
            let mut versions = versions.into_iter().flatten();
            if let Some(version) = versions.find(|v| v["storage"] == true) {
                let version = version["name"].as_str().unwrap_or_default().to_owned();
                let key = (group.to_owned(), resource.to_owned());
                self.custom_versions.insert(key, version);
            }
        }
        let resource = self
            .store
            .built_in(&DEFINITIONS.group, &DEFINITIONS.resource);
        let resource = resource.context("definitions are not served")?;
        self.import(resource, definitions).await?;
        self.store.serve_definitions().await
    }

    /// The resources whose objects Karmada stores, by group and name.
    async fn discover(&mut self, host: &dyn Api) -> anyhow::Result<Vec<ListedResource>> {
        let filter = |group: &str| !group.ends_with(METRICS);
        let discovered = host.discover_groups(&filter).await;
        let discovered = discovered.context("the resources of Karmada")?;
        for (version, reason) in discovered.failed_group_versions {
            self.errors.push(format!(
                "{version} cannot be read ({reason}): make its server available, or remove its \
                 APIService"
            ));
        }
        let mut resources: BTreeMap<(String, String), ListedResource> = BTreeMap::new();
        for served in discovered.resources {
            if !served.allows("list") || !served.allows("create") {
                continue;
            }
            let gvr = &served.resource;
            let (group, resource) = (gvr.group.to_string(), gvr.resource.to_string());
            let listed = ListedResource {
                group: group.clone(),
                resource: resource.clone(),
                kind: served.kind,
                versions: Vec::new(),
            };
            let entry = resources.entry((group, resource)).or_insert(listed);
            entry.versions.push(gvr.version.to_string());
        }
        Ok(resources.into_values().collect())
    }

    async fn read_resource(
        &mut self,
        host: &dyn Api,
        listed: &ListedResource,
        options: &ReadOptions<'_>,
    ) -> anyhow::Result<()> {
        if server_objects::is_server_made(&listed.group, &listed.resource) {
            return Ok(());
        }
        let is_left = options.left.contains(&listed.name());
        ensure!(
            !is_left || !self.is_built_in(listed),
            "--leave {}: Flotilla has this resource itself, and what members have may depend on \
             it; it moves",
            listed.name()
        );
        let is_read =
            (&*listed.group, &*listed.resource) == (&*DEFINITIONS.group, &*DEFINITIONS.resource);
        if is_read {
            return Ok(());
        }
        if is_left {
            let note = format!("{} stay behind (--leave)", listed.name());
            self.notes.push(note);
            return Ok(());
        }
        let reason = match self.stored_resource(listed) {
            Some(stored) if listed.versions.contains(&stored.version) => {
                let objects = read_objects(host, &stored.gvr(), &stored.kind).await?;
                let moving = |object| server_objects::moving(&stored.gvr(), object);
                let objects = objects.into_iter().filter_map(moving).collect();
                return self.import(stored, objects).await;
            }
            Some(stored) => format!(
                "Flotilla stores version {}, and Karmada serves {} only",
                stored.version,
                listed.versions.join(", ")
            ),
            None => self.unserved_reason(listed),
        };
        self.refuse_objects(host, listed, &reason).await
    }

    /// Whether Flotilla has the resource without a definition, in a version that Karmada serves.
    fn is_built_in(&self, listed: &ListedResource) -> bool {
        let built_in = self.store.built_in(&listed.group, &listed.resource);
        built_in.is_some_and(|stored| listed.versions.contains(&stored.version))
    }

    /// The resource as Flotilla stores it.
    fn stored_resource(&self, listed: &ListedResource) -> Option<MovedResource> {
        let (group, resource) = (listed.group.clone(), listed.resource.clone());
        if let Some(built_in) = self.store.built_in(&group, &resource) {
            return Some(built_in);
        }
        let key = (group, resource);
        let version = self.custom_versions.get(&key)?.clone();
        let (group, resource) = key;
        self.store.custom(&Gvr::new(group, version, resource))
    }

    fn unserved_reason(&self, listed: &ListedResource) -> String {
        let key = (listed.group.clone(), listed.resource.clone());
        match self.custom_versions.get(&key) {
            Some(version) => {
                format!("their definition stores version {version}, which it does not serve")
            }
            None => "Flotilla does not serve them".to_owned(),
        }
    }

    async fn refuse_objects(
        &mut self,
        host: &dyn Api,
        listed: &ListedResource,
        reason: &str,
    ) -> anyhow::Result<()> {
        let version = listed.versions.first().cloned().unwrap_or_default();
        let gvr = Gvr::new(listed.group.clone(), version, listed.resource.clone());
        let objects = read_objects(host, &gvr, &listed.kind).await?.into_iter();
        let moving = objects.filter_map(|object| server_objects::moving(&gvr, object));
        let count = moving.count();
        if count > 0 {
            let name = listed.name();
            self.errors.push(format!(
                "{count} {name} cannot be moved: {reason}; add --leave {name}, or delete them (and their \
                 copies in members)"
            ));
        }
        Ok(())
    }

    async fn import(
        &mut self,
        mut resource: MovedResource,
        objects: Vec<Value>,
    ) -> anyhow::Result<()> {
        let gvr = resource.gvr();
        let refusals = self.store.import(&gvr, objects.iter().cloned()).await?;
        self.errors.extend(refusals);
        resource.objects = objects.len();
        let objects = objects.into_iter().map(|o| (object_key(&o), o)).collect();
        self.snapshot
            .resources
            .push(ResourceSnapshot { resource, objects });
        Ok(())
    }

    /// The objects that are not stored as Karmada has them, one line each.
    pub(super) async fn differences(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for resource in &self.snapshot.resources {
            let gvr = resource.resource.gvr();
            for (key, object) in &resource.objects {
                let (namespace, name) = object_names(object);
                let stored = self.store.get(&gvr, namespace, name).await;
                let stored = stored.with_context(|| format!("{gvr} {key}"))?;
                let (stored, object) = (without_version(&stored), without_version(object));
                if let Some(path) = first_difference("", &stored, &object) {
                    let path = path.trim_start_matches('.');
                    lines.push(format!("{gvr} {key} differs in {path}"));
                }
            }
        }
        Ok(first_lines(lines))
    }
}

impl ListedResource {
    /// `RESOURCE.GROUP`.
    fn name(&self) -> String {
        join_group(&self.resource, &self.group)
    }
}

async fn read_objects(host: &dyn Api, resource: &Gvr, kind: &str) -> anyhow::Result<Vec<Value>> {
    let objects = list_resource(host, resource, kind).await;
    let objects = objects.with_context(|| format!("{resource} cannot be listed"))?;
    Ok(objects.unwrap_or_default())
}

/// The group and the resource of a definition.
fn defined_names(definition: &Value) -> (&str, &str) {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    (group, plural)
}

fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
        meta.remove("selfLink");
    }
    object
}

/// The path of the first field in which two values differ. A field that is null is as one that is
/// absent: Kubernetes does not store it either.
fn first_difference(path: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
            let mut differences = names.into_iter().filter_map(|name| {
                let [one, other] = [fields, others].map(|f| f.get(name).unwrap_or(&Value::Null));
                first_difference(&format!("{path}.{name}"), one, other)
            });
            differences.next()
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let pairs = items.iter().zip(others).enumerate();
            let mut differences = pairs.filter_map(|(index, (item, other))| {
                first_difference(&format!("{path}[{index}]"), item, other)
            });
            differences.next()
        }
        _ => (one != other).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: TKS-identity
    #[test]
    fn a_difference_is_named_by_its_path() {
        let one = json!({"a": {"b": [1, {"c": "x"}]}, "d": null});
        for (other, expected) in [
            (json!({"a": {"b": [1, {"c": "x"}]}}), None),
            (json!({"a": {"b": [1, {"c": "x", "e": null}]}}), None),
            (json!({"a": {"b": [1, {"c": "y"}]}}), Some(".a.b[1].c")),
            (json!({"a": {"b": [1]}}), Some(".a.b")),
            (json!({"a": {"b": [1, {"c": "x"}]}, "d": 1}), Some(".d")),
            (json!({}), Some(".a")),
        ] {
            let difference = first_difference("", &one, &other);
            assert_eq!(difference.as_deref(), expected, "{other}");
        }
    }
}
