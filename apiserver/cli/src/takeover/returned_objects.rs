//! Writes the objects that Flotilla had to Karmada's definitions: creates, updates, states and
//! deletions since the takeover.
//!
//! An object that was there keeps its uid. One that was created since gets a new one, which the
//! owner references of others follow. Fields that say which generation was observed follow the
//! generation that Karmada's server counts.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use aggregation::{MovedResource, list_resource};
use anyhow::Context;
use client::{Api, DeleteOptions, Patch, ResourcePath, ignore_not_found};
use futures_util::{StreamExt, TryStreamExt, stream};
use machinery::Gvr;
use serde_json::{Map, Value, json};

use super::session::{TakeoverSession, write_options};
use super::snapshot::{ResourceSnapshot, Snapshot, object_names, without_identity};
use crate::conflicts::retry_on_conflict;

/// The objects that are written at once.
const CONCURRENT_WRITES: usize = 16;
/// The fields of a status that have the generation of their object.
const GENERATION_FIELDS: [&str; 2] = ["observedGeneration", "schedulerObservedGeneration"];
/// The fields of metadata that are written.
const METADATA_FIELDS: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// The uids that objects have now, by those that they had.
pub(super) type UidMap = BTreeMap<String, String>;

pub(super) struct ReturnedObjects<'a> {
    pub(super) session: &'a TakeoverSession,
    /// The objects of Karmada's definitions at the takeover.
    pub(super) frozen: &'a Snapshot,
    /// The objects that Flotilla had otherwise from the beginning, because it dropped fields.
    pub(super) imported: &'a Snapshot,
    /// Flotilla's objects.
    pub(super) returned: &'a Snapshot,
}

impl ReturnedObjects<'_> {
    fn host(&self) -> &Arc<dyn Api> {
        &self.session.host
    }

    /// Creates and updates. Returns the uids that have changed.
    pub(super) async fn write(&self) -> anyhow::Result<UidMap> {
        let mut uids = UidMap::new();
        for resource in &self.returned.resources {
            uids.extend(self.create_missing(resource).await?);
        }
        for resource in &self.returned.resources {
            let current = self.current(&resource.resource).await?;
            let updates = resource.objects.iter().map(|(key, object)| {
                let current = current.get(key).cloned();
                let uids = &uids;
                async move {
                    let object = &self.with_dropped_fields(&resource.resource, key, object);
                    let updated = self.update(&resource.resource, object, current, uids);
                    let gvr = resource.resource.gvr();
                    updated.await.with_context(|| format!("{gvr} {key}"))
                }
            });
            let updates = stream::iter(updates).buffer_unordered(CONCURRENT_WRITES);
            updates.try_collect::<Vec<()>>().await?;
        }
        Ok(uids)
    }

    /// Deletes the objects that Flotilla has no more. Returns how many.
    pub(super) async fn delete_others(&self) -> anyhow::Result<usize> {
        let mut deleted = 0;
        for resource in &self.frozen.resources {
            let returned = self.returned.of(&resource.resource);
            let current = self.current(&resource.resource).await?;
            let leftovers = resource.objects.iter().filter_map(|(key, object)| {
                let is_returned = returned.is_some_and(|r| r.objects.contains_key(key));
                let current = current.get(key).filter(|_| !is_returned)?;
                let is_same = current["metadata"]["uid"] == object["metadata"]["uid"];
                is_same.then_some((key, current))
            });
            let deletions = leftovers.map(|(key, current)| async move {
                let gvr = resource.resource.gvr();
                let deletion = self.delete(&resource.resource, current).await;
                deletion.with_context(|| format!("{gvr} {key}"))
            });
            let deletions = stream::iter(deletions).buffer_unordered(CONCURRENT_WRITES);
            deleted += deletions.try_collect::<Vec<()>>().await?.len();
        }
        Ok(deleted)
    }

    /// Flotilla's object, with the fields that it has dropped.
    fn with_dropped_fields<'v>(
        &self,
        resource: &MovedResource,
        key: &str,
        object: &'v Value,
    ) -> Cow<'v, Value> {
        let of = |snapshot: &'_ Snapshot| snapshot.of(resource)?.objects.get(key).cloned();
        let (Some(frozen), Some(imported)) = (of(self.frozen), of(self.imported)) else {
            return Cow::Borrowed(object);
        };
        match imported["metadata"]["uid"] == object["metadata"]["uid"] {
            true => Cow::Owned(with_fields_of(object, &imported, &frozen)),
            false => Cow::Borrowed(object),
        }
    }

    async fn current(&self, resource: &MovedResource) -> anyhow::Result<BTreeMap<String, Value>> {
        let gvr = resource.gvr();
        let objects = list_resource(&**self.host(), &gvr, &resource.kind).await;
        let objects = objects.with_context(|| format!("{gvr} cannot be listed"))?;
        let objects = objects.unwrap_or_default().into_iter();
        Ok(objects
            .map(|o| (super::snapshot::object_key(&o), o))
            .collect())
    }

    /// Creates what is missing, still without owners. Returns the changed uids.
    async fn create_missing(&self, resource: &ResourceSnapshot) -> anyhow::Result<UidMap> {
        let gvr = resource.resource.gvr();
        let current = self.current(&resource.resource).await?;
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        let (gvr, current) = (&gvr, &current);
        let creations = resource.objects.iter().map(|(key, object)| async move {
            let new_uid = match current.get(key) {
                Some(current) => uid(current),
                None => {
                    let created = self.create(gvr, object).await;
                    created.with_context(|| format!("{gvr} {key}"))?
                }
            };
            anyhow::Ok((uid(object), new_uid))
        });
        let creations = stream::iter(creations).buffer_unordered(CONCURRENT_WRITES);
        let mut uids: UidMap = creations.try_collect().await?;
        uids.retain(|old, new| old != new);
        Ok(uids)
    }

    /// Creates an object without its owners. Returns its uid.
    async fn create(&self, gvr: &Gvr, object: &Value) -> anyhow::Result<String> {
        let mut body = without_identity(object);
        if let Some(meta) = body["metadata"].as_object_mut() {
            meta.remove("ownerReferences");
        }
        let (namespace, _) = object_names(object);
        let all = ResourcePath::collection(gvr, namespace);
        let created = self.host().create(all, body.into(), write_options());
        Ok(created.await?.uid().to_owned())
    }

    /// Makes an object that exists the one that Flotilla had.
    async fn update(
        &self,
        resource: &MovedResource,
        object: &Value,
        current: Option<Value>,
        uids: &UidMap,
    ) -> anyhow::Result<()> {
        let gvr = resource.gvr();
        let (namespace, name) = object_names(object);
        let at = ResourcePath::object(&gvr, namespace, name);
        let listed = Cell::new(current);
        let is_deleting = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        let updated = retry_on_conflict(|| async {
            let current = match listed.take() {
                Some(current) => current,
                None => self.host().get(at).await?.value()?,
            };
            self.update_once(at, object, &current, uids).await?;
            Ok(is_deleting(&current))
        });
        if !updated.await? && is_deleting(object) {
            ignore_not_found(self.host().delete(at, &DeleteOptions::default()).await)?;
        }
        Ok(())
    }

    async fn update_once(
        &self,
        at: ResourcePath<'_>,
        object: &Value,
        current: &Value,
        uids: &UidMap,
    ) -> client::Result<()> {
        let desired = desired_object(object, current, uids);
        let mut current = current.clone();
        if !is_equal(&desired, &current, false) {
            let updated = self
                .host()
                .update(at, desired.clone().into(), write_options());
            current = updated.await?.value()?;
        }
        let desired = with_status(desired, object, &current);
        if is_equal(&desired, &current, true) {
            return Ok(());
        }
        let status = at.subresource("status");
        let updated = self.host().update(status, desired.into(), write_options());
        // A kind without the subresource has its status already.
        ignore_not_found(updated.await)?;
        Ok(())
    }

    /// Deletes an object that Flotilla has no more: its finalizers have been served there.
    async fn delete(&self, resource: &MovedResource, current: &Value) -> anyhow::Result<()> {
        let gvr = resource.gvr();
        let (namespace, name) = object_names(current);
        let at = ResourcePath::object(&gvr, namespace, name);
        if current["metadata"]["finalizers"].is_array() {
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let patched = self.host().patch(at, patch, write_options()).await;
            if ignore_not_found(patched)?.is_none() {
                return Ok(());
            }
        }
        let options = DeleteOptions {
            uid: current["metadata"]["uid"].as_str().map(str::to_owned),
            ..DeleteOptions::default()
        };
        ignore_not_found(self.host().delete(at, &options).await)?;
        Ok(())
    }
}

/// An object in which everything that was not changed since its import is as it was before that. A
/// list that was changed is taken as a whole.
fn with_fields_of(object: &Value, imported: &Value, frozen: &Value) -> Value {
    if object == imported {
        return frozen.clone();
    }
    let (Value::Object(fields), Value::Object(before), Value::Object(original)) =
        (object, imported, frozen)
    else {
        return object.clone();
    };
    let mut merged = Map::new();
    for name in fields.keys().chain(original.keys()) {
        let value = match (fields.get(name), before.get(name), original.get(name)) {
            (field, before, original) if field == before => original.cloned(),
            (Some(field), Some(before), Some(original)) => {
                Some(with_fields_of(field, before, original))
            }
            (field, ..) => field.cloned(),
        };
        merged.extend(value.map(|value| (name.clone(), value)));
    }
    Value::Object(merged)
}

/// The object that Flotilla had, with the identity of the current one.
fn desired_object(object: &Value, current: &Value, uids: &UidMap) -> Value {
    let mut desired = object.clone();
    let mut meta = current["metadata"].clone();
    for field in METADATA_FIELDS {
        match object["metadata"].get(field) {
            Some(value) => meta[field] = value.clone(),
            None => {
                if let Some(meta) = meta.as_object_mut() {
                    meta.remove(field);
                }
            }
        }
    }
    for owner in meta["ownerReferences"].as_array_mut().into_iter().flatten() {
        if let Some(uid) = owner["uid"].as_str().and_then(|uid| uids.get(uid)) {
            owner["uid"] = uid.clone().into();
        }
    }
    if meta["ownerReferences"].is_null()
        && let Some(meta) = meta.as_object_mut()
    {
        meta.remove("ownerReferences");
    }
    desired["metadata"] = meta;
    desired
}

/// The desired object for the write of its status: the generation that the status has observed is
/// that of the current object.
fn with_status(mut desired: Value, object: &Value, current: &Value) -> Value {
    let generation = &object["metadata"]["generation"];
    for field in GENERATION_FIELDS {
        if !generation.is_null() && desired["status"][field] == *generation {
            desired["status"][field] = current["metadata"]["generation"].clone();
        }
    }
    if desired["status"].is_null()
        && let Some(fields) = desired.as_object_mut()
    {
        fields.remove("status");
    }
    for field in ["resourceVersion", "generation", "managedFields"] {
        desired["metadata"][field] = current["metadata"][field].clone();
    }
    desired
}

/// Whether an object is as desired: its status, or everything else.
fn is_equal(desired: &Value, current: &Value, status: bool) -> bool {
    if status {
        return desired["status"] == current["status"];
    }
    let rest = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.remove("status");
        fields.remove("metadata");
        let meta = METADATA_FIELDS.map(|field| object["metadata"][field].clone());
        (fields, meta)
    };
    rest(desired) == rest(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: TKO-dropped
    #[test]
    fn dropped_fields_come_back_where_nothing_was_changed() {
        let frozen = json!({"spec": {"a": 1, "unknown": 2, "b": {"c": 3, "unknown": 4},
            "list": [{"x": 1, "unknown": 5}]}, "unknown": 6});
        let imported = json!({"spec": {"a": 1, "b": {"c": 3}, "list": [{"x": 1}]}});
        let object = |a: u8, c: u8, x: u8| json!({"spec": {"a": a, "b": {"c": c}, "list": [{"x": x}], "new": 7}});
        let expected = |a: u8, c: u8, list: Value| json!({"spec": {"a": a, "unknown": 2, "b": {"c": c, "unknown": 4}, "list": list, "new": 7}, "unknown": 6});
        let kept = frozen["spec"]["list"].clone();
        for (returned, expected) in [
            (imported.clone(), frozen.clone()),
            (object(1, 3, 1), expected(1, 3, kept.clone())),
            (object(8, 9, 1), expected(8, 9, kept)),
            (object(1, 3, 2), expected(1, 3, json!([{"x": 2}]))),
            (
                json!({"spec": {"a": 1}}),
                json!({"spec": {"a": 1, "unknown": 2}, "unknown": 6}),
            ),
        ] {
            assert_eq!(with_fields_of(&returned, &imported, &frozen), expected);
        }
    }

    // proves: TKO-generations
    #[test]
    fn owners_and_observed_generations_follow() {
        let object = json!({"metadata": {"name": "b", "uid": "1", "generation": 7,
                "labels": {"a": "new"}, "ownerReferences": [{"uid": "2"}, {"uid": "3"}]},
            "spec": 2, "status": {"schedulerObservedGeneration": 7, "other": 7}});
        let current = json!({"metadata": {"name": "b", "uid": "1", "generation": 4,
            "finalizers": ["f"], "resourceVersion": "9"}, "spec": 1});
        let uids = UidMap::from([("2".to_owned(), "two".to_owned())]);
        let desired = desired_object(&object, &current, &uids);
        assert_eq!(
            desired["metadata"]["ownerReferences"],
            json!([{"uid": "two"}, {"uid": "3"}])
        );
        assert_eq!(desired["metadata"]["resourceVersion"], "9");
        assert!(desired["metadata"]["finalizers"].is_null());
        assert!(!is_equal(&desired, &current, false));
        let written = with_status(desired, &object, &current);
        assert_eq!(
            written["status"],
            json!({"schedulerObservedGeneration": 4, "other": 7})
        );
    }
}
