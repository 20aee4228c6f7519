//! Get, list and watch, served by the watch cache.
//!
//! Selectors match stored objects; objects of other versions are converted afterwards.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use client::At;
use machinery::{FieldSelector, Gvk, LabelSelector, Object, Status};
use rand::Rng;
use tokio::sync::watch;
use tokio::time::Instant;
use watchcache::{Change, Delivery, Filter, ListRequest, Params, Predicate, WatchRequest, Watcher};

use crate::fields::Field;
use crate::options::{params, watch_params};
use crate::registry::Registry;
use crate::request::{Ctx, GetOptions, ListReply, WatchOptions};
use crate::scale;
use crate::table::Row;
use crate::view::View;

/// The timeout of watches without one is random, between this and twice this.
const WATCH_MIN: Duration = Duration::from_secs(30 * 60);

/// The storage key of an object without the prefix of its resource.
pub(crate) fn suffix(resource: &Row, namespace: &str, name: &str) -> String {
    if resource.kind.namespaced {
        format!("{namespace}/{name}")
    } else {
        name.to_owned()
    }
}

/// Converts a stored object to the version of a served resource.
pub(crate) fn shown(resource: &Row, object: Object) -> Result<Object, Status> {
    if resource.view == View::Stored {
        return Ok(object);
    }
    let mut value = object
        .value()
        .map_err(|e| resource.unreadable(&object, e))?;
    resource.view.read(&resource.kind.gvk, &mut value);
    Object::from_value(&value).map_err(Status::internal)
}

/// 405 unless the resource, or its subresource, supports the verb.
pub(crate) fn check_verb(resource: &Row, at: &At<'_>, verb: &str) -> Result<(), Status> {
    let allowed = if at.subresource.is_empty() {
        resource.allows(verb)
    } else {
        let sub = resource
            .subresource(at.subresource)
            .ok_or_else(Status::no_such_path)?;
        sub.verbs.contains(&verb)
    };
    if allowed {
        Ok(())
    } else {
        Err(Status::method_not_allowed())
    }
}

impl Registry {
    /// Gets an object, or its `status` or `scale`. 404 if it does not exist.
    pub async fn get(&self, _: &Ctx, at: At<'_>, options: &GetOptions) -> Result<Object, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "get")?;
        let position = Params {
            resource_version: &options.resource_version,
            resource_version_match: "",
            limit: 0,
            continue_token: "",
            send_initial_events: None,
        };
        let fresh = position.get()?;
        let object = resource
            .stored
            .cache
            .get(&suffix(&resource, at.namespace, at.name), fresh)
            .await
            .map_err(|e| e.status())?
            .ok_or_else(|| Status::not_found(&resource.kind.gvr, at.name))?;
        match (at.subresource, &resource.kind.scale) {
            ("scale", Some(paths)) => {
                let parent = object.value().map_err(Status::internal)?;
                Object::from_value(&scale::of(paths, &parent)?).map_err(Status::internal)
            }
            ("" | "status", _) => shown(&resource, object),
            // Other subresources are served elsewhere.
            _ => Err(Status::no_such_path()),
        }
    }

    /// Lists a page of a collection.
    pub async fn list(
        &self,
        _: &Ctx,
        at: At<'_>,
        options: &client::ListOptions,
    ) -> Result<ListReply, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "list")?;
        let position = params(options);
        let request = ListRequest {
            filter: filter(
                &resource,
                &at,
                &options.label_selector,
                &options.field_selector,
            )?,
            at: position.list()?,
            limit: position.limit,
        };
        let reply = resource
            .stored
            .cache
            .list(request)
            .await
            .map_err(|e| e.status())?;
        let items = if resource.view == View::Stored {
            reply.items
        } else {
            let converted = reply.items.into_iter().map(|o| shown(&resource, o));
            converted.collect::<Result<_, _>>()?
        };
        Ok(ListReply {
            items,
            revision: reply.revision,
            next: reply.next,
            remaining: reply.remaining,
            row: resource,
        })
    }

    /// Watches a collection.
    pub async fn watch(
        &self,
        _: &Ctx,
        at: At<'_>,
        options: &WatchOptions,
    ) -> Result<Watch, Status> {
        let resource = self.row(at.resource)?;
        check_verb(&resource, &at, "watch")?;
        let request = WatchRequest {
            filter: filter(
                &resource,
                &at,
                &options.label_selector,
                &options.field_selector,
            )?,
            start: watch_params(options).watch()?,
            bookmarks: options.bookmarks,
            deadline: Some(Instant::now() + options.timeout.unwrap_or_else(draw_timeout)),
        };
        let watcher = resource
            .stored
            .cache
            .watch(request)
            .await
            .map_err(|e| e.status())?;
        let definition = resource.definition.clone();
        Ok(Watch {
            watcher,
            resource,
            definition,
        })
    }
}

/// Resolves when the definition of a custom resource changes or is deleted.
async fn redefined(definition: &mut Option<watch::Receiver<()>>) {
    match definition {
        // Nothing is ever sent; the drop of the sender is the signal.
        Some(definition) => while definition.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

fn draw_timeout() -> Duration {
    WATCH_MIN.mul_f64(1.0 + rand::rng().random::<f64>())
}

/// Builds the filter of the watch cache, which takes namespace and name separately.
fn filter(resource: &Row, at: &At<'_>, labels: &str, fields: &str) -> Result<Filter, Status> {
    let labels = LabelSelector::parse(labels).map_err(Status::bad_request)?;
    let fields = FieldSelector::parse(fields).map_err(Status::bad_request)?;
    let mut filter = Filter {
        namespace: (resource.kind.namespaced && !at.namespace.is_empty())
            .then(|| at.namespace.to_owned()),
        name: (!at.name.is_empty()).then(|| at.name.to_owned()),
        matches: None,
    };
    let mut used: Vec<Field> = Vec::new();
    let mut match_fields = false;
    for requirement in fields.requirements() {
        match (requirement.field.as_str(), requirement.equal) {
            ("metadata.name", true) if filter.name.is_none() => {
                filter.name = Some(requirement.value.clone());
            }
            ("metadata.name" | "metadata.namespace", _) => match_fields = true,
            (label, _) => {
                let field = resource
                    .fields
                    .iter()
                    .find(|f| f.label == label)
                    .ok_or_else(|| {
                        Status::bad_request(format!("field label not supported: {label}"))
                    })?;
                used.push(field.clone());
                match_fields = true;
            }
        }
    }
    let match_labels = !labels.is_everything();
    if match_labels || match_fields {
        let predicate: Predicate = Arc::new(move |object: &Object| {
            labels.matches(|key| object.head().label(key))
                && (!match_fields || fields.matches(|label| field_of(&used, object, label)))
        });
        filter.matches = Some(predicate);
    }
    Ok(filter)
}

fn field_of<'a>(used: &[Field], object: &'a Object, label: &str) -> Option<Cow<'a, str>> {
    match label {
        "metadata.name" => Some(Cow::Borrowed(object.name())),
        "metadata.namespace" => Some(Cow::Borrowed(object.namespace())),
        _ => used
            .iter()
            .find(|f| f.label == label)
            .map(|f| Cow::Owned(f.of(object))),
    }
}

/// A running watch; dropping it stops it.
pub struct Watch {
    watcher: Watcher,
    resource: Arc<Row>,
    definition: Option<watch::Receiver<()>>,
}

/// An item of a watch.
pub enum Item {
    Event(Event),
    /// All events up to `revision` were delivered; `initial_end` marks the end of the
    /// initial events.
    Bookmark {
        revision: u64,
        initial_end: bool,
    },
}

/// One event, with the object in the requested version.
pub struct Event(Inner);

enum Inner {
    Shared(Delivery),
    Converted {
        change: Change,
        object: Object,
        frame: OnceLock<Bytes>,
    },
}

impl Event {
    pub fn change(&self) -> Change {
        match &self.0 {
            Inner::Shared(d) => d.change(),
            Inner::Converted { change, .. } => *change,
        }
    }

    pub fn object(&self) -> &Object {
        match &self.0 {
            Inner::Shared(d) => d.object(),
            Inner::Converted { object, .. } => object,
        }
    }

    pub fn revision(&self) -> u64 {
        self.object().revision()
    }

    /// `{"type":…,"object":…}` and a line feed; encoded once for all watchers of the
    /// storage version.
    pub fn frame(&self) -> Bytes {
        match &self.0 {
            Inner::Shared(d) => d.frame(),
            Inner::Converted {
                change,
                object,
                frame,
            } => frame.get_or_init(|| encode(*change, object)).clone(),
        }
    }
}

fn encode(change: Change, object: &Object) -> Bytes {
    let mut line = Vec::with_capacity(object.bytes().len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(change.as_str().as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object.bytes());
    line.extend_from_slice(b"}\n");
    line.into()
}

impl Watch {
    /// The next item; `None` at the end of the watch, or when the definition of a custom
    /// resource changes. An error ends the watch. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Item, Status>> {
        let item = tokio::select! {
            biased;
            () = redefined(&mut self.definition) => return None,
            item = self.watcher.next() => item?,
        };
        Some(self.convert(item))
    }

    /// The next item, if one is available without waiting.
    pub fn try_next(&mut self) -> Option<Result<Item, Status>> {
        let definition = self.definition.as_ref();
        if definition.is_some_and(|d| d.has_changed().is_err()) {
            return None;
        }
        let item = self.watcher.try_next()?;
        Some(self.convert(item))
    }

    /// The watched resource.
    pub fn row(&self) -> &Arc<Row> {
        &self.resource
    }

    /// The kind of the objects, for bookmarks.
    pub fn kind(&self) -> &Gvk {
        &self.resource.kind.gvk
    }

    fn convert(&self, item: Result<watchcache::Item, watchcache::Error>) -> Result<Item, Status> {
        match item.map_err(|e| e.status())? {
            watchcache::Item::Bookmark {
                revision,
                initial_end,
            } => Ok(Item::Bookmark {
                revision,
                initial_end,
            }),
            watchcache::Item::Event(delivery) if self.resource.view == View::Stored => {
                Ok(Item::Event(Event(Inner::Shared(delivery))))
            }
            watchcache::Item::Event(delivery) => Ok(Item::Event(Event(Inner::Converted {
                change: delivery.change(),
                object: shown(&self.resource, delivery.object().clone())?,
                frame: OnceLock::new(),
            }))),
        }
    }
}
