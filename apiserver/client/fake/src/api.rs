//! The implementation of [`Api`] on the fake's store, and its watch streams.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream;
use machinery::{FieldSelector, Gvr, LabelSelector, Object, Status};
use serde_json::Value;
use tokio::sync::watch;

use super::store::{FakeHistoryChange, FakeHistoryEntry, FakeStore};
use super::{FakeApi, FakeApiState, FakeCall, RecordedWrite};
use client::{
    Api, ApiCall, ApiReply, DeleteOptions, ListOptions, ObjectList, Patch, ResourcePath, Result,
    ServerResources, WatchEvent, WatchOptions, WatchStream, WriteBody, WriteOptions,
    create_each_event,
};

/// The selectors of a list or watch.
struct FakeListWatchSelector {
    resource: Gvr,
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl FakeListWatchSelector {
    fn new(at: ResourcePath<'_>, labels: &str, fields: &str) -> Result<Self> {
        Ok(Self {
            resource: at.resource.clone(),
            namespace: at.namespace.to_owned(),
            labels: LabelSelector::parse(labels).map_err(Status::bad_request)?,
            fields: FieldSelector::parse(fields).map_err(Status::bad_request)?,
        })
    }

    fn matches(&self, object: &Object) -> bool {
        let head = object.meta();
        if !self.namespace.is_empty() && *head.namespace != *self.namespace {
            return false;
        }
        if !self.labels.matches(|key| head.label(key)) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let value = object.value().unwrap_or_default();
        self.fields.matches(|field| {
            let field_value = field.split('.').try_fold(&value, |v, step| v.get(step));
            Some(match field_value {
                Some(Value::String(s)) => Cow::Owned(s.clone()),
                Some(other) => Cow::Owned(other.to_string()),
                None => Cow::Borrowed(""),
            })
        })
    }

    fn watch_event(&self, entry: &FakeHistoryEntry, bookmarks: bool) -> Option<WatchEvent> {
        match &entry.change {
            FakeHistoryChange::Bookmark => bookmarks.then_some(WatchEvent::Bookmark {
                revision: entry.revision,
                initial_end: false,
            }),
            FakeHistoryChange::Object { resource, .. } if *resource != self.resource => None,
            FakeHistoryChange::Object { old, new, .. } => {
                let was = old.as_ref().filter(|o| self.matches(o));
                let is = new.as_ref().filter(|o| self.matches(o));
                match (was, is) {
                    (None, None) => None,
                    (None, Some(new)) => Some(WatchEvent::Added(new.clone())),
                    (Some(_), Some(new)) => Some(WatchEvent::Modified(new.clone())),
                    (Some(old), None) => {
                        Some(WatchEvent::Deleted(with_revision(old, entry.revision)))
                    }
                }
            }
        }
    }
}

/// A deleted object gets the revision at which it stopped matching.
fn with_revision(object: &Object, revision: u64) -> Object {
    let restamped = object.value().ok().and_then(|mut value| {
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        Object::from_value(&value).ok()
    });
    restamped.unwrap_or_else(|| object.clone())
}

impl FakeApi {
    fn run_call_hook(&self, call: &FakeCall<'_>) -> Result<()> {
        let callback = self.call_hook.lock().clone();
        callback.and_then(|h| h(call)).map_or(Ok(()), Err)
    }

    fn record_write<T>(
        &self,
        verb: &'static str,
        at: ResourcePath<'_>,
        body: &Value,
        dry_run: bool,
        act: impl FnOnce(&mut FakeStore) -> Result<T>,
    ) -> Result<T> {
        if dry_run {
            let mut copy = self.server.store.lock().clone();
            return act(&mut copy);
        }
        self.writes.lock().push(RecordedWrite {
            verb,
            resource: at.resource.clone(),
            namespace: at.namespace.to_owned(),
            name: at.name.to_owned(),
            subresource: at.subresource.to_owned(),
            body: body.clone(),
        });
        let result = self.mutate(act);
        let callback = self.write_hook.lock().clone();
        if let Some(callback) = callback.filter(|_| result.is_ok()) {
            callback(&fake_call(verb, Some(at), ""));
        }
        result
    }

    fn list_page(&self, at: ResourcePath<'_>, options: &ListOptions) -> Result<ObjectList> {
        let selector =
            FakeListWatchSelector::new(at, &options.label_selector, &options.field_selector)?;
        let state = self.server.store.lock();
        let mut list = ObjectList {
            revision: state.revision,
            ..ObjectList::default()
        };
        let after = options.continue_token.split_once(' ');
        if let Some((revision, _)) = after {
            list.revision = revision.parse().unwrap_or_default();
            if list.revision < state.compacted_revision {
                return Err(Status::expired("The provided continue parameter is too old").into());
            }
        }
        let mut last = String::new();
        for object in state.list(at.resource) {
            let key = format!("{}/{}", object.namespace(), object.name());
            let already_listed = after.is_some_and(|(_, after)| *key <= *after);
            if already_listed || !selector.matches(object) {
                continue;
            }
            if options.limit > 0 && list.items.len() as u64 == options.limit {
                list.continue_token = format!("{} {last}", list.revision);
                break;
            }
            list.items.push(object.clone());
            last = key;
        }
        Ok(list)
    }

    fn open_watch(&self, at: ResourcePath<'_>, options: &WatchOptions) -> Result<WatchStream> {
        let mut selector =
            FakeListWatchSelector::new(at, &options.label_selector, &options.field_selector)?;
        if !at.name.is_empty() {
            let exact = format!("metadata.name={}", at.name);
            selector.fields = FieldSelector::parse(&exact).map_err(Status::bad_request)?;
        }
        let from: u64 = match options.resource_version.as_str() {
            "" => 0,
            n => n
                .parse()
                .map_err(|_| Status::bad_request(format!("invalid resource version {n:?}")))?,
        };
        let moved = self.server.event_counter.subscribe();
        let state = self.server.store.lock();
        if from > 0 && from < state.compacted_revision {
            let message = format!(
                "too old resource version: {from} ({})",
                state.compacted_revision
            );
            return Err(Status::expired(message).into());
        }
        let mut pending = VecDeque::new();
        let mut position = state.history.len();
        if from == 0 || options.send_initial_events {
            let present = state.list(at.resource).filter(|o| selector.matches(o));
            pending.extend(present.cloned().map(WatchEvent::Added));
            if options.send_initial_events && options.bookmarks {
                pending.push_back(WatchEvent::Bookmark {
                    revision: state.revision,
                    initial_end: true,
                });
            }
        } else {
            position = state.history.partition_point(|e| e.revision <= from);
        }
        let cursor = FakeWatch {
            server: Arc::clone(&self.server),
            event_counter: moved,
            selector,
            bookmarks: options.bookmarks,
            generation: state.watch_generation,
            position,
            pending_events: pending,
        };
        drop(state);
        Ok(Box::pin(stream::unfold(cursor, FakeWatch::next)))
    }

    fn create_object(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        let body = body.into_tree()?;
        let respond = self.create_responders.lock().get(at.resource).cloned();
        if let Some(respond) = respond {
            return Ok(Object::from_value(&respond(body))?);
        }
        let kind = self.kind_of(at.resource);
        let sent = body.clone();
        self.record_write("create", at, &sent, options.dry_run, |state| {
            if at.subresource.is_empty() {
                state.create(at, kind.as_deref(), body)
            } else {
                state.create_subresource(at, &body)
            }
        })
    }

    fn patch_object(
        &self,
        at: ResourcePath<'_>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Object> {
        let sent = match &patch {
            Patch::Json(body) | Patch::Merge(body) | Patch::Strategic(body) => body.clone(),
        };
        self.record_write("patch", at, &sent, options.dry_run, |state| {
            let mut value = state.get(at)?.value()?;
            match patch {
                Patch::Json(steps) => {
                    let steps: json_patch::Patch = serde_json::from_value(steps)
                        .map_err(|e| Status::bad_request(e.to_string()))?;
                    json_patch::patch(&mut value, &steps)
                        .map_err(|e| Status::failure(422, "Invalid", e.to_string()))?;
                }
                Patch::Merge(body) | Patch::Strategic(body) => {
                    json_patch::merge(&mut value, &body);
                }
            }
            state.update_patched(at, value)
        })
    }

    fn delete_objects(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        selector: &ListOptions,
    ) -> Result<()> {
        let selector =
            FakeListWatchSelector::new(at, &selector.label_selector, &selector.field_selector)?;
        self.record_write("deletecollection", at, &Value::Null, options.dry_run, |s| {
            let all: Vec<Object> = s.list(at.resource).cloned().collect();
            for object in all.iter().filter(|o| selector.matches(o)) {
                s.delete(ResourcePath::of_object(at.resource, object), options)?;
            }
            Ok(())
        })
    }
}

fn fake_call<'a>(verb: &'a str, at: Option<ResourcePath<'a>>, path: &'a str) -> FakeCall<'a> {
    FakeCall {
        verb,
        resource: at.map(|a| a.resource),
        namespace: at.map_or("", |a| a.namespace),
        name: at.map_or(path, |a| a.name),
        subresource: at.map_or("", |a| a.subresource),
    }
}

#[async_trait]
impl Api for FakeApi {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        if let ApiCall::Create(at, ..) = &call {
            let delay = self.create_delays.lock().get(at.resource).copied();
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
        }
        let path = match call {
            ApiCall::GetRaw(path, _) => path,
            _ => "",
        };
        // Each event is a call of its own.
        if !matches!(call, ApiCall::CreateEvents(_)) {
            self.run_call_hook(&fake_call(call.verb(), call.path(), path))?;
        }
        Ok(match call {
            ApiCall::Get(at) | ApiCall::GetCached(at) => self.server.store.lock().get(at)?.into(),
            ApiCall::List(at, options) => self.list_page(at, options)?.into(),
            ApiCall::Watch(at, options) => self.open_watch(at, options)?.into(),
            ApiCall::Create(at, body, options) => self.create_object(at, body, options)?.into(),
            ApiCall::CreateEvents(events) => create_each_event(self, events).await.into(),
            ApiCall::Update(at, body, options) => {
                let body = body.into_tree()?;
                let sent = body.clone();
                let update = |s: &mut FakeStore| s.update(at, body);
                let updated = self.record_write("update", at, &sent, options.dry_run, update);
                updated?.into()
            }
            ApiCall::Patch(at, patch, options) => self.patch_object(at, patch, options)?.into(),
            ApiCall::Delete(at, options) => {
                let delete = |s: &mut FakeStore| s.delete(at, options);
                let deleted =
                    self.record_write("delete", at, &Value::Null, options.dry_run, delete);
                deleted?.into()
            }
            ApiCall::DeleteCollection(at, options, select) => {
                self.delete_objects(at, options, select)?.into()
            }
            ApiCall::Discover(filter) => {
                let resources = ServerResources {
                    resources: self.resources.lock().clone(),
                    failed_group_versions: Vec::new(),
                };
                resources.retain_groups(filter).into()
            }
            ApiCall::GetRaw(path, most) => {
                let body = self.raw_bodies.lock().get(path).cloned();
                let body = body.ok_or_else(Status::path_not_found)?;
                if body.len() > most {
                    return Err(client::Error::Protocol("the body is too large".into()));
                }
                body.into()
            }
        })
    }
}

/// An open watch and its position in the history.
struct FakeWatch {
    server: Arc<FakeApiState>,
    event_counter: watch::Receiver<u64>,
    selector: FakeListWatchSelector,
    bookmarks: bool,
    generation: u64,
    position: usize,
    pending_events: VecDeque<WatchEvent>,
}

impl FakeWatch {
    async fn next(mut self) -> Option<(Result<WatchEvent>, Self)> {
        loop {
            if let Some(event) = self.pending_events.pop_front() {
                return Some((Ok(event), self));
            }
            self.event_counter.borrow_and_update();
            {
                let state = self.server.store.lock();
                if state.watch_generation != self.generation {
                    return None;
                }
                if !state.paused_watches.contains(&self.selector.resource) {
                    let news = state.history.get(self.position..).unwrap_or_default();
                    for entry in news {
                        self.pending_events
                            .extend(self.selector.watch_event(entry, self.bookmarks));
                    }
                    self.position = state.history.len();
                }
            }
            if self.pending_events.is_empty() {
                self.event_counter.changed().await.ok()?;
            }
        }
    }
}
