//! The fake's objects and their history, and the server's rules of a write. Synchronous.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use machinery::{Gvr, Object, Status, time};
use serde_json::{Map, Value, json};

use client::{DeleteOptions, DeletionPropagation, ResourcePath, Result};

/// Metadata fields that a server omits when they are empty.
const OMITTED_EMPTY: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];

type FakeNamespacedName = (String, String);

/// One entry of the history.
#[derive(Clone)]
pub(super) struct FakeHistoryEntry {
    pub(super) revision: u64,
    pub(super) change: FakeHistoryChange,
}

#[derive(Clone)]
pub(super) enum FakeHistoryChange {
    Object {
        resource: Gvr,
        old: Option<Object>,
        /// `None`: deleted; `old` then has the revision of the deletion.
        new: Option<Object>,
    },
    Bookmark,
}

#[derive(Clone)]
pub(super) struct FakeStore {
    pub(super) revision: u64,
    pub(super) now: Timestamp,
    /// Watches opened in an older generation end.
    pub(super) watch_generation: u64,
    /// A watch from before this revision gets 410.
    pub(super) compacted_revision: u64,
    pub(super) history: Vec<FakeHistoryEntry>,
    /// Watches of these resources deliver nothing for now.
    pub(super) paused_watches: HashSet<Gvr>,
    objects: HashMap<Gvr, BTreeMap<FakeNamespacedName, Object>>,
    serial: u64,
    /// Differs between the servers of a test.
    server_number: u32,
}

/// The servers made so far.
static SERVERS: AtomicU32 = AtomicU32::new(0);

impl FakeStore {
    pub(super) fn new() -> Self {
        Self {
            revision: 1,
            now: Timestamp::from_second(1_767_225_600).unwrap_or_default(),
            watch_generation: 0,
            compacted_revision: 0,
            history: Vec::new(),
            paused_watches: HashSet::new(),
            objects: HashMap::new(),
            serial: 0,
            server_number: SERVERS.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(super) fn find(&self, resource: &Gvr, namespace: &str, name: &str) -> Option<&Object> {
        let key = (namespace.to_owned(), name.to_owned());
        self.objects.get(resource)?.get(&key)
    }

    pub(super) fn get(&self, at: ResourcePath<'_>) -> Result<Object> {
        self.find(at.resource, at.namespace, at.name)
            .cloned()
            .ok_or_else(|| Status::not_found(at.resource, at.name).into())
    }

    pub(super) fn list(&self, resource: &Gvr) -> impl Iterator<Item = &Object> {
        self.objects
            .get(resource)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    pub(super) fn seed(
        &mut self,
        resource: &Gvr,
        kind: Option<&str>,
        mut value: Value,
    ) -> Result<Object> {
        self.set_type_meta(resource, kind, &mut value);
        let namespace = metadata_string(&value, "namespace");
        let name = metadata_string(&value, "name");
        let old = self.find(resource, &namespace, &name).cloned();
        self.set_uid_and_creation_timestamp(&mut value);
        if value.get("spec").is_some() && value["metadata"].get("generation").is_none() {
            value["metadata"]["generation"] = json!(1);
        }
        self.put(resource, old, value)
    }

    pub(super) fn create(
        &mut self,
        at: ResourcePath<'_>,
        kind: Option<&str>,
        mut body: Value,
    ) -> Result<Object> {
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        if !metadata_string(&body, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::bad_request(message).into());
        }
        self.set_type_meta(at.resource, kind, &mut body);
        self.check_namespace(at, &mut body)?;
        if metadata_string(&body, "name").is_empty() {
            let prefix = metadata_string(&body, "generateName");
            if prefix.is_empty() {
                return Err(Status::bad_request("name or generateName is required").into());
            }
            self.serial += 1;
            body["metadata"]["name"] = json!(format!("{prefix}{:05}", self.serial));
        }
        let name = metadata_string(&body, "name");
        if self.find(at.resource, at.namespace, &name).is_some() {
            return Err(Status::already_exists(at.resource, &name).into());
        }
        let metadata = as_object_mut(&mut body["metadata"]);
        for made_by_server in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "generation",
        ] {
            metadata.remove(made_by_server);
        }
        self.set_uid_and_creation_timestamp(&mut body);
        as_object_mut(&mut body).remove("status");
        if body.get("spec").is_some() {
            body["metadata"]["generation"] = json!(1);
        }
        self.put(at.resource, None, body)
    }

    /// A PUT of an object, whose uid is a precondition.
    pub(super) fn update(&mut self, at: ResourcePath<'_>, body: Value) -> Result<Object> {
        let uid = metadata_string(&body, "uid");
        self.write(at, body, &uid)
    }

    /// A PUT of a patched object. A patch cannot change the uid.
    pub(super) fn update_patched(&mut self, at: ResourcePath<'_>, body: Value) -> Result<Object> {
        let uid = metadata_string(&body, "uid");
        let old = self.get(at)?;
        if metadata_string(&body, "name") == at.name && !uid.is_empty() && uid != old.uid() {
            let message = "metadata.uid: field is immutable";
            return Err(Status::failure(422, "Invalid", message).into());
        }
        self.write(at, body, "")
    }

    /// Keeps the status, or for the status subresource everything else.
    fn write(&mut self, at: ResourcePath<'_>, mut body: Value, uid: &str) -> Result<Object> {
        let old = self.get(at)?;
        let before = old.value()?;
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        self.check_namespace(at, &mut body)?;
        if metadata_string(&body, "name") != at.name {
            let message = "the name of the object does not match the name on the URL";
            return Err(Status::bad_request(message).into());
        }
        check_preconditions(at, &old, &metadata_string(&body, "resourceVersion"), uid)?;
        let mut after = body;
        match at.subresource {
            "" | "finalize" => {
                copy_field(&before, &mut after, "status");
                for own in [
                    "uid",
                    "creationTimestamp",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                    "generation",
                    "resourceVersion",
                ] {
                    copy_field(&before["metadata"], &mut after["metadata"], own);
                }
                for own in ["apiVersion", "kind"] {
                    if after.get(own).is_none() {
                        copy_field(&before, &mut after, own);
                    }
                }
            }
            "status" => {
                let status = after.get("status").cloned();
                after = before.clone();
                match status {
                    Some(status) => after["status"] = status,
                    None => drop(as_object_mut(&mut after).remove("status")),
                }
            }
            "scale" => {
                let replicas = after["spec"]["replicas"].clone();
                after = before.clone();
                after["spec"]["replicas"] = replicas;
            }
            other => return Err(no_subresource(at, other).into()),
        }
        if old.meta().deleting {
            let had = finalizers_of(&before);
            if finalizers_of(&after).iter().any(|f| !had.contains(f)) {
                let message = "no new finalizers can be added if the object is being deleted";
                return Err(Status::failure(422, "Invalid", message.to_owned()).into());
            }
        }
        if after == before {
            return Ok(old);
        }
        if without_metadata_and_status(&before) != without_metadata_and_status(&after)
            && let Some(n) = before["metadata"]["generation"].as_i64()
        {
            after["metadata"]["generation"] = json!(n + 1);
        }
        let dead = after["metadata"].get("deletionTimestamp").is_some();
        if dead && !has_finalizers(at.resource, &after) {
            // The state without finalizers is never stored: watches see the last stored
            // one, and the writer gets the last stored revision.
            self.remove(at.resource, at.namespace, at.name);
            let written = Object::from_value(&after);
            return written.map_err(|_| Status::internal("not an object").into());
        }
        self.put(at.resource, Some(old), after)
    }

    pub(super) fn delete(
        &mut self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<Option<Object>> {
        let old = self.get(at)?;
        let expected = options.resource_version.as_deref().unwrap_or_default();
        let uid = options.uid.as_deref().unwrap_or_default();
        check_preconditions(at, &old, expected, uid)?;
        let before = old.value()?;
        let mut value = before.clone();
        let finalizers = finalizers_after_delete(&before, options.propagation);
        value["metadata"]["finalizers"] = json!(finalizers);
        if !has_finalizers(at.resource, &value) {
            self.remove(at.resource, at.namespace, at.name);
            return Ok(None);
        }
        if old.meta().deleting {
            if finalizers_of(&before) == finalizers {
                return Ok(Some(old));
            }
            return self.put(at.resource, Some(old), value).map(Some);
        }
        value["metadata"]["deletionTimestamp"] = json!(time::rfc3339_seconds(self.now));
        value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        if let Some(n) = value["metadata"]["generation"].as_i64() {
            value["metadata"]["generation"] = json!(n + 1);
        }
        self.put(at.resource, Some(old), value).map(Some)
    }

    /// A POST to a subresource of an object.
    pub(super) fn create_subresource(
        &mut self,
        at: ResourcePath<'_>,
        body: &Value,
    ) -> Result<Object> {
        let old = self.get(at)?;
        match at.subresource {
            "binding" => {
                let mut value = old.value()?;
                value["spec"]["nodeName"] = body["target"]["name"].clone();
                self.put(at.resource, Some(old), value)
            }
            "eviction" => {
                self.delete(at, &DeleteOptions::default())?;
                Ok(old)
            }
            other => Err(no_subresource(at, other).into()),
        }
    }

    pub(super) fn remove(&mut self, resource: &Gvr, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(gone) = self.objects.get_mut(resource).and_then(|m| m.remove(&key)) else {
            return;
        };
        self.revision += 1;
        let last = gone
            .value()
            .ok()
            .and_then(|v| self.with_current_revision(v))
            .unwrap_or(gone);
        self.record(resource, Some(last), None);
    }

    pub(super) fn compact(&mut self) {
        self.revision += 1;
        self.compacted_revision = self.revision;
    }

    pub(super) fn bookmark(&mut self) {
        self.history.push(FakeHistoryEntry {
            revision: self.revision,
            change: FakeHistoryChange::Bookmark,
        });
    }

    fn put(&mut self, resource: &Gvr, old: Option<Object>, mut value: Value) -> Result<Object> {
        self.revision += 1;
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let metadata = as_object_mut(&mut value["metadata"]);
        metadata.retain(|name, field| !(OMITTED_EMPTY.contains(&name.as_str()) && is_empty(field)));
        let new = Object::from_value(&value)?;
        let key = (new.namespace().to_owned(), new.name().to_owned());
        self.objects
            .entry(resource.clone())
            .or_default()
            .insert(key, new.clone());
        self.record(resource, old, Some(new.clone()));
        Ok(new)
    }

    fn record(&mut self, resource: &Gvr, old: Option<Object>, new: Option<Object>) {
        self.history.push(FakeHistoryEntry {
            revision: self.revision,
            change: FakeHistoryChange::Object {
                resource: resource.clone(),
                old,
                new,
            },
        });
    }

    fn with_current_revision(&self, mut value: Value) -> Option<Object> {
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        Object::from_value(&value).ok()
    }

    fn set_uid_and_creation_timestamp(&mut self, value: &mut Value) {
        self.serial += 1;
        // Two servers have no uid in common.
        let uid = format!(
            "{:08x}-0000-4000-8000-{:012x}",
            self.server_number, self.serial
        );
        let now = time::rfc3339_seconds(self.now);
        let metadata = as_object_mut(&mut value["metadata"]);
        metadata.entry("uid").or_insert_with(|| json!(uid));
        metadata
            .entry("creationTimestamp")
            .or_insert_with(|| json!(now));
    }

    fn set_type_meta(&self, resource: &Gvr, kind: Option<&str>, value: &mut Value) {
        let api_version = resource.api_version();
        let top = as_object_mut(value);
        top.entry("apiVersion")
            .or_insert_with(|| json!(api_version));
        if let Some(kind) = kind {
            top.entry("kind").or_insert_with(|| json!(kind));
        }
    }

    fn check_namespace(&self, at: ResourcePath<'_>, body: &mut Value) -> Result<()> {
        let body_namespace = metadata_string(body, "namespace");
        if body_namespace.is_empty() && !at.namespace.is_empty() {
            body["metadata"]["namespace"] = json!(at.namespace);
        } else if body_namespace != at.namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message).into());
        }
        Ok(())
    }
}

fn finalizers_of(value: &Value) -> Vec<&str> {
    let list = value["metadata"]["finalizers"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The finalizers of a deleted object, with the garbage collector's finalizer for the
/// propagation policy (`rest.deletionFinalizersForGarbageCollection`).
fn finalizers_after_delete(value: &Value, propagation: Option<DeletionPropagation>) -> Vec<&str> {
    let own = ["orphan", "foregroundDeletion"];
    let before = finalizers_of(value);
    let finalizer = match propagation {
        Some(DeletionPropagation::Orphan) => Some(own[0]),
        Some(DeletionPropagation::Foreground) => Some(own[1]),
        Some(DeletionPropagation::Background) => None,
        None => own.into_iter().find(|f| before.contains(f)),
    };
    let keeps = |f: &&str| finalizer == Some(*f) || !own.contains(f);
    let mut after: Vec<&str> = before.into_iter().filter(keeps).collect();
    if let Some(finalizer) = finalizer
        && !after.contains(&finalizer)
    {
        after.push(finalizer);
    }
    after
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn check_preconditions(
    at: ResourcePath<'_>,
    old: &Object,
    revision: &str,
    uid: &str,
) -> Result<()> {
    if !uid.is_empty() && uid != old.uid() {
        let message = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.uid()
        );
        return Err(Status::conflict(at.resource, at.name, message).into());
    }
    if !revision.is_empty() && revision != old.revision().to_string() {
        return Err(Status::stale_resource_version(at.resource, at.name).into());
    }
    Ok(())
}

fn no_subresource(at: ResourcePath<'_>, _name: &str) -> Status {
    Status::not_found(at.resource, at.name)
}

/// The fields whose change increments the generation.
fn without_metadata_and_status(value: &Value) -> Value {
    let mut rest = value.clone();
    let top = as_object_mut(&mut rest);
    top.remove("metadata");
    top.remove("status");
    rest
}

/// Whether finalizers keep a deleted object.
fn has_finalizers(resource: &Gvr, value: &Value) -> bool {
    let any = |list: &Value| list.as_array().is_some_and(|l| !l.is_empty());
    let namespace = resource.group.is_empty() && resource.resource == "namespaces";
    any(&value["metadata"]["finalizers"]) || (namespace && any(&value["spec"]["finalizers"]))
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(old) => to[field] = old.clone(),
        None => drop(as_object_mut(to).remove(field)),
    }
}

fn metadata_string(value: &Value, field: &str) -> String {
    value["metadata"][field]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The fields of a JSON object; replaces any other value by an empty object.
fn as_object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("replaced by an object above"),
    }
}
