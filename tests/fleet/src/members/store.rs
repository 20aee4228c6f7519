//! The objects of one member, and watches of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use machinery::selector::LabelSelector;
use machinery::{Object, Status};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::discovery::MemberResource;
use super::progress::FleetProgress;
use super::request::ResourceTarget;
use super::workload_status::ready_status;

/// Events that are kept for clients that resume. One that has missed more lists again.
const MAX_KEPT_EVENTS: usize = 256;
const CREATION_TIME: &str = "2026-01-01T00:00:00Z";

#[derive(Clone, Copy, PartialEq, Eq)]
enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

struct ObjectEvent {
    kind: EventType,
    object: Object,
}

impl ObjectEvent {
    /// The event as a watch with this selector sends it. An object that has stopped matching looks
    /// deleted, also to a watch that has not sent it before: that does no harm.
    fn encode(&self, selector: &LabelSelector) -> Option<Bytes> {
        let kind = match (self.kind, matches(selector, &self.object)) {
            (kind, true) => kind,
            (EventType::Modified, false) => EventType::Deleted,
            (_, false) => return None,
        };
        let mut line = format!("{{\"type\":\"{}\",\"object\":", kind.as_str()).into_bytes();
        line.extend_from_slice(&self.object.bytes());
        line.extend_from_slice(b"}\n");
        Some(line.into())
    }
}

fn matches(selector: &LabelSelector, object: &Object) -> bool {
    selector.matches(|key| object.meta().label(key))
}

struct Watcher {
    selector: LabelSelector,
    events: UnboundedSender<Bytes>,
}

/// The objects of one kind.
#[derive(Default)]
struct Collection {
    /// By `namespace/name`.
    objects: BTreeMap<String, Object>,
    watchers: Vec<Watcher>,
    events: VecDeque<ObjectEvent>,
    /// The revision of the last event that is not kept.
    compacted: u64,
}

impl Collection {
    fn publish(&mut self, kind: EventType, object: Object) {
        let event = ObjectEvent { kind, object };
        self.watchers
            .retain(|watcher| match event.encode(&watcher.selector) {
                Some(line) => watcher.events.send(line).is_ok(),
                None => !watcher.events.is_closed(),
            });
        self.events.push_back(event);
        if self.events.len() > MAX_KEPT_EVENTS
            && let Some(dropped) = self.events.pop_front()
        {
            self.compacted = dropped.object.revision();
        }
    }
}

#[derive(Default)]
struct StoreState {
    revision: u64,
    /// By group and plural name.
    collections: HashMap<(&'static str, &'static str), Collection>,
}

impl StoreState {
    fn collection(&mut self, resource: &'static MemberResource) -> &mut Collection {
        let key = (&*resource.gvr.group, &*resource.gvr.resource);
        self.collections.entry(key).or_default()
    }

    /// Stores an object at the next revision and publishes it.
    fn put(
        &mut self,
        resource: &'static MemberResource,
        key: &str,
        value: &mut Value,
    ) -> Result<(Option<Object>, Object), Status> {
        self.revision += 1;
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Object::from_value(value).map_err(bad_request)?;
        let collection = self.collection(resource);
        let old = collection.objects.insert(key.to_owned(), object.clone());
        let kind = match old {
            Some(_) => EventType::Modified,
            None => EventType::Added,
        };
        collection.publish(kind, object.clone());
        Ok((old, object))
    }
}

/// A page of a list.
pub(super) struct ObjectPage {
    pub(super) objects: Vec<Object>,
    pub(super) revision: u64,
    /// The key of the last object, if more follow.
    pub(super) last_key: Option<String>,
}

/// The objects of one member.
pub(super) struct MemberStore {
    /// Distinguishes the uids of members.
    member: usize,
    state: Mutex<StoreState>,
    progress: Arc<FleetProgress>,
}

impl MemberStore {
    pub(super) fn new(member: usize, progress: Arc<FleetProgress>) -> Self {
        Self {
            member,
            state: Mutex::default(),
            progress,
        }
    }

    pub(super) fn get(&self, target: &ResourceTarget) -> Result<Object, Status> {
        let mut state = self.state.lock();
        let collection = state.collection(target.resource);
        let object = collection.objects.get(&object_key(target));
        object.cloned().ok_or_else(|| not_found(target))
    }

    /// A page of the objects behind `after` that match.
    pub(super) fn list(
        &self,
        target: &ResourceTarget,
        selector: &LabelSelector,
        after: &str,
        limit: usize,
    ) -> ObjectPage {
        let mut state = self.state.lock();
        let revision = state.revision;
        let mut objects = Vec::new();
        let mut last_key = None;
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let collection = state.collection(target.resource);
        for (key, object) in collection.objects.range::<str, _>(range) {
            let is_listed = target.namespace.is_empty() || object.namespace() == target.namespace;
            if !is_listed || !matches(selector, object) {
                continue;
            }
            if objects.len() == limit {
                return ObjectPage {
                    objects,
                    revision,
                    last_key,
                };
            }
            objects.push(object.clone());
            last_key = Some(key.clone());
        }
        ObjectPage {
            objects,
            revision,
            last_key: None,
        }
    }

    /// The events after a revision; with revision 0 all objects first.
    pub(super) fn watch(
        &self,
        target: &ResourceTarget,
        selector: LabelSelector,
        revision: u64,
    ) -> Result<UnboundedReceiver<Bytes>, Status> {
        let (events, receiver) = unbounded_channel();
        let mut state = self.state.lock();
        let collection = state.collection(target.resource);
        if revision > 0 && revision < collection.compacted {
            return Err(Status::expired("too old resource version"));
        }
        let send = |event: &ObjectEvent| {
            if let Some(line) = event.encode(&selector) {
                // The receiver is below.
                let _ = events.send(line);
            }
        };
        if revision == 0 {
            for object in collection.objects.values() {
                send(&ObjectEvent {
                    kind: EventType::Added,
                    object: object.clone(),
                });
            }
        } else {
            let later = |event: &&ObjectEvent| event.object.revision() > revision;
            collection.events.iter().filter(later).for_each(send);
        }
        collection.watchers.push(Watcher { selector, events });
        Ok(receiver)
    }

    /// Creates an object; a workload gets its status right after it.
    pub(super) fn create(
        &self,
        target: &ResourceTarget,
        mut value: Value,
    ) -> Result<Object, Status> {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let target = ResourceTarget {
            name: name.to_owned(),
            resource: target.resource,
            namespace: target.namespace.clone(),
        };
        let key = object_key(&target);
        let mut state = self.state.lock();
        if state.collection(target.resource).objects.contains_key(&key) {
            return Err(Status::already_exists(&target.resource.gvr, &target.name));
        }
        let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.member, state.revision);
        let metadata = &mut value["metadata"];
        metadata["uid"] = uid.into();
        metadata["generation"] = 1.into();
        metadata["creationTimestamp"] = CREATION_TIME.into();
        let (_, object) = state.put(target.resource, &key, &mut value)?;
        self.progress
            .record_object(self.member, None, Some(&object));
        set_ready_status(&mut state, target.resource, &key, value)?;
        Ok(object)
    }

    /// Replaces an object, unless its resourceVersion is outdated.
    pub(super) fn update(
        &self,
        target: &ResourceTarget,
        mut value: Value,
    ) -> Result<Object, Status> {
        let key = object_key(target);
        let mut state = self.state.lock();
        let objects = &state.collection(target.resource).objects;
        let old = objects
            .get(&key)
            .cloned()
            .ok_or_else(|| not_found(target))?;
        let stored = old.value().map_err(bad_request)?;
        let version = value["metadata"]["resourceVersion"].as_str();
        if version.is_some_and(|v| !v.is_empty() && v != old.revision().to_string()) {
            let gvr = &target.resource.gvr;
            return Err(Status::stale_resource_version(gvr, &target.name));
        }
        let metadata = &mut value["metadata"];
        for field in ["uid", "generation", "creationTimestamp", "resourceVersion"] {
            metadata[field] = stored["metadata"][field].clone();
        }
        if !stored["status"].is_null() {
            value["status"] = stored["status"].clone();
        }
        if value == stored {
            return Ok(old);
        }
        if value["spec"] != stored["spec"] {
            value["metadata"]["generation"] = (old.meta().generation + 1).into();
        }
        let (_, object) = state.put(target.resource, &key, &mut value)?;
        self.progress
            .record_object(self.member, Some(&old), Some(&object));
        set_ready_status(&mut state, target.resource, &key, value)?;
        Ok(object)
    }

    /// Deletes an object at once.
    pub(super) fn delete(&self, target: &ResourceTarget, options: &Value) -> Result<(), Status> {
        let key = object_key(target);
        let mut state = self.state.lock();
        state.revision += 1;
        let revision = state.revision;
        let collection = state.collection(target.resource);
        let old = collection.objects.get(&key).cloned();
        let old = old.ok_or_else(|| not_found(target))?;
        let uid = options["preconditions"]["uid"].as_str();
        if uid.is_some_and(|uid| uid != old.uid()) {
            let message = "the UID in the precondition differs";
            return Err(Status::conflict(
                &target.resource.gvr,
                &target.name,
                message,
            ));
        }
        collection.objects.remove(&key);
        self.progress.record_object(self.member, Some(&old), None);
        let last = old.with_revision(revision).map_err(bad_request)?;
        collection.publish(EventType::Deleted, last);
        Ok(())
    }

    /// Reads all objects, kind by kind.
    pub(super) fn for_each_object(&self, mut read: impl FnMut(&Object)) {
        let state = self.state.lock();
        let mut collections: Vec<_> = state.collections.iter().collect();
        collections.sort_by_key(|(key, _)| **key);
        for (_, collection) in collections {
            collection.objects.values().for_each(&mut read);
        }
    }
}

/// Sets the status of a workload, as its controllers would.
fn set_ready_status(
    state: &mut StoreState,
    resource: &'static MemberResource,
    key: &str,
    mut value: Value,
) -> Result<(), Status> {
    let status = ready_status(resource.kind, &value);
    if let Some(status) = status.filter(|status| *status != value["status"]) {
        value["status"] = status;
        state.put(resource, key, &mut value)?;
    }
    Ok(())
}

fn object_key(target: &ResourceTarget) -> String {
    format!("{}/{}", target.namespace, target.name)
}

fn bad_request(error: machinery::object::MalformedObject) -> Status {
    Status::bad_request(error.to_string())
}

fn not_found(target: &ResourceTarget) -> Status {
    Status::not_found(&target.resource.gvr, &target.name)
}
