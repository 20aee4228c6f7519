//! The implementation of [`Api`] on the fake's store, and its watch streams.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use machinery::{FieldSelector, Gvr, LabelSelector, Object, Status};
use serde_json::Value;
use tokio::sync::watch;

use super::state::{Entry, State, Step};
use super::{Call, FakeApi, Shared, Write};
use crate::api::{
    Api, At, DeleteOptions, Discovered, List, ListOptions, Patch, Result, WatchEvent, WatchOptions,
    WatchStream, WriteOptions,
};
use crate::encoded::EncodedBody;

/// The selectors of a list or watch.
struct Selection {
    resource: Gvr,
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    fn new(at: At<'_>, labels: &str, fields: &str) -> Result<Self> {
        Ok(Self {
            resource: at.resource.clone(),
            namespace: at.namespace.to_owned(),
            labels: LabelSelector::parse(labels).map_err(Status::bad_request)?,
            fields: FieldSelector::parse(fields).map_err(Status::bad_request)?,
        })
    }

    fn matches(&self, object: &Object) -> bool {
        let head = object.head();
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
            let found = field.split('.').try_fold(&value, |v, step| v.get(step));
            Some(match found {
                Some(Value::String(s)) => Cow::Owned(s.clone()),
                Some(other) => Cow::Owned(other.to_string()),
                None => Cow::Borrowed(""),
            })
        })
    }

    fn event(&self, entry: &Entry, bookmarks: bool) -> Option<WatchEvent> {
        match &entry.step {
            Step::Bookmark => bookmarks.then_some(WatchEvent::Bookmark {
                revision: entry.revision,
                initial_end: false,
            }),
            Step::Change { resource, .. } if *resource != self.resource => None,
            Step::Change { old, new, .. } => {
                let was = old.as_ref().filter(|o| self.matches(o));
                let is = new.as_ref().filter(|o| self.matches(o));
                match (was, is) {
                    (None, None) => None,
                    (None, Some(new)) => Some(WatchEvent::Added(new.clone())),
                    (Some(_), Some(new)) => Some(WatchEvent::Modified(new.clone())),
                    (Some(old), None) => {
                        Some(WatchEvent::Deleted(at_revision(old, entry.revision)))
                    }
                }
            }
        }
    }
}

/// A deleted object gets the revision at which it stopped matching.
fn at_revision(object: &Object, revision: u64) -> Object {
    let restamped = object.value().ok().and_then(|mut value| {
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        Object::from_value(&value).ok()
    });
    restamped.unwrap_or_else(|| object.clone())
}

impl FakeApi {
    fn ask(&self, verb: &str, at: Option<At<'_>>, path: &str) -> Result<()> {
        let hook = self.hook.lock().clone();
        let call = call(verb, at, path);
        hook.and_then(|h| h(&call)).map_or(Ok(()), Err)
    }

    fn write<T>(
        &self,
        verb: &'static str,
        at: At<'_>,
        body: &Value,
        dry_run: bool,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.ask(verb, Some(at), "")?;
        if dry_run {
            let mut copy = self.shared.state.lock().clone();
            return act(&mut copy);
        }
        self.writes.lock().push(Write {
            verb,
            resource: at.resource.clone(),
            namespace: at.namespace.to_owned(),
            name: at.name.to_owned(),
            subresource: at.subresource.to_owned(),
            body: body.clone(),
        });
        let answer = self.change(act);
        let hook = self.answer_hook.lock().clone();
        if let Some(hook) = hook.filter(|_| answer.is_ok()) {
            hook(&call(verb, Some(at), ""));
        }
        answer
    }
}

fn call<'a>(verb: &'a str, at: Option<At<'a>>, path: &'a str) -> Call<'a> {
    Call {
        verb,
        resource: at.map(|a| a.resource),
        namespace: at.map_or("", |a| a.namespace),
        name: at.map_or(path, |a| a.name),
        subresource: at.map_or("", |a| a.subresource),
    }
}

fn decode(body: EncodedBody) -> Result<Value> {
    let tree = body.into_value();
    Ok(tree.map_err(|e| Status::bad_request(e.to_string()))?)
}

#[async_trait]
impl Api for FakeApi {
    async fn get(&self, at: At<'_>) -> Result<Object> {
        self.ask("get", Some(at), "")?;
        self.shared.state.lock().get(at)
    }

    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List> {
        self.ask("list", Some(at), "")?;
        let select = Selection::new(at, &options.label_selector, &options.field_selector)?;
        let state = self.shared.state.lock();
        let mut list = List {
            revision: state.revision,
            ..List::default()
        };
        let after = options.continue_token.split_once(' ');
        if let Some((revision, _)) = after {
            list.revision = revision.parse().unwrap_or_default();
            if list.revision < state.oldest {
                return Err(Status::expired("The provided continue parameter is too old").into());
            }
        }
        let mut last = String::new();
        for object in state.all(at.resource) {
            let key = format!("{}/{}", object.namespace(), object.name());
            let seen = after.is_some_and(|(_, after)| *key <= *after);
            if seen || !select.matches(object) {
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

    async fn watch(&self, at: At<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.ask("watch", Some(at), "")?;
        let mut select = Selection::new(at, &options.label_selector, &options.field_selector)?;
        if !at.name.is_empty() {
            let exact = format!("metadata.name={}", at.name);
            select.fields = FieldSelector::parse(&exact).map_err(Status::bad_request)?;
        }
        let from: u64 = match options.resource_version.as_str() {
            "" => 0,
            n => n
                .parse()
                .map_err(|_| Status::bad_request(format!("invalid resource version {n:?}")))?,
        };
        let moved = self.shared.moved.subscribe();
        let state = self.shared.state.lock();
        if from > 0 && from < state.oldest {
            let why = format!("too old resource version: {from} ({})", state.oldest);
            return Err(Status::expired(why).into());
        }
        let mut pending = VecDeque::new();
        let mut position = state.log.len();
        if from == 0 || options.send_initial_events {
            let present = state.all(at.resource).filter(|o| select.matches(o));
            pending.extend(present.cloned().map(WatchEvent::Added));
            if options.send_initial_events && options.bookmarks {
                pending.push_back(WatchEvent::Bookmark {
                    revision: state.revision,
                    initial_end: true,
                });
            }
        } else {
            position = state.log.partition_point(|e| e.revision <= from);
        }
        let cursor = Cursor {
            shared: Arc::clone(&self.shared),
            moved,
            select,
            bookmarks: options.bookmarks,
            generation: state.generation,
            position,
            pending,
        };
        drop(state);
        Ok(Box::pin(stream::unfold(cursor, Cursor::next)))
    }

    async fn create(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        let delay = self.create_delays.lock().get(at.resource).copied();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        let answer = self.answers.lock().get(at.resource).cloned();
        if let Some(answer) = answer {
            self.ask("create", Some(at), "")?;
            return Ok(Object::from_value(&answer(body))?);
        }
        let kind = self.kind_of(at.resource);
        let sent = body.clone();
        self.write("create", at, &sent, options.dry_run, |state| {
            if at.subresource.is_empty() {
                state.create(at, kind.as_deref(), body)
            } else {
                state.create_sub(at, &body)
            }
        })
    }

    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.create(at, decode(body)?, options).await
    }

    async fn update(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        let sent = body.clone();
        self.write("update", at, &sent, options.dry_run, |s| s.update(at, body))
    }

    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.update(at, decode(body)?, options).await
    }

    async fn patch(&self, at: At<'_>, patch: Patch, options: &WriteOptions) -> Result<Object> {
        let sent = match &patch {
            Patch::Json(body) | Patch::Merge(body) | Patch::Strategic(body) => body.clone(),
        };
        self.write("patch", at, &sent, options.dry_run, |state| {
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
            state.update(at, value)
        })
    }

    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>> {
        self.write("delete", at, &Value::Null, options.dry_run, |s| {
            s.delete(at, options)
        })
    }

    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        let select = Selection::new(at, &select.label_selector, &select.field_selector)?;
        self.write("deletecollection", at, &Value::Null, options.dry_run, |s| {
            let all: Vec<Object> = s.all(at.resource).cloned().collect();
            for object in all.iter().filter(|o| select.matches(o)) {
                s.delete(At::of(at.resource, object), options)?;
            }
            Ok(())
        })
    }

    async fn resources(&self) -> Result<Discovered> {
        self.ask("resources", None, "")?;
        Ok(Discovered {
            resources: self.served.lock().clone(),
            failed: Vec::new(),
        })
    }

    async fn raw(&self, path: &str) -> Result<Bytes> {
        self.ask("raw", None, path)?;
        let found = self.raw.lock().get(path).cloned();
        found.ok_or_else(|| Status::no_such_path().into())
    }
}

/// An open watch and its position in the history.
struct Cursor {
    shared: Arc<Shared>,
    moved: watch::Receiver<u64>,
    select: Selection,
    bookmarks: bool,
    generation: u64,
    position: usize,
    pending: VecDeque<WatchEvent>,
}

impl Cursor {
    async fn next(mut self) -> Option<(Result<WatchEvent>, Self)> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some((Ok(event), self));
            }
            self.moved.borrow_and_update();
            {
                let state = self.shared.state.lock();
                if state.generation != self.generation {
                    return None;
                }
                if !state.held.contains(&self.select.resource) {
                    let news = state.log.get(self.position..).unwrap_or_default();
                    for entry in news {
                        self.pending
                            .extend(self.select.event(entry, self.bookmarks));
                    }
                    self.position = state.log.len();
                }
            }
            if self.pending.is_empty() {
                self.moved.changed().await.ok()?;
            }
        }
    }
}
