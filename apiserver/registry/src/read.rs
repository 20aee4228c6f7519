//! Get, list and watch.
//!
//! Enters: places and options. Leaves: shared objects and watch items, straight
//! from the watch cache. Selection happens on stored objects; kinds with several
//! versions are converted on the way out.

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

/// Watches without a timeout of their own end within this time and twice it.
const WATCH_MIN: Duration = Duration::from_secs(30 * 60);

/// Where an object is kept below its prefix.
pub(crate) fn suffix(row: &Row, namespace: &str, name: &str) -> String {
    if row.kind.namespaced {
        format!("{namespace}/{name}")
    } else {
        name.to_owned()
    }
}

/// An object in the version a row shows.
pub(crate) fn shown(row: &Row, object: Object) -> Result<Object, Status> {
    if row.view == View::Stored {
        return Ok(object);
    }
    let mut value = object.value().map_err(|e| row.unreadable(&object, e))?;
    row.view.read(&row.kind.gvk, &mut value);
    Object::from_value(&value).map_err(Status::internal)
}

/// 405 unless the row, or its subresource, allows the verb.
pub(crate) fn check_verb(row: &Row, at: &At<'_>, verb: &str) -> Result<(), Status> {
    let allowed = if at.subresource.is_empty() {
        row.allows(verb)
    } else {
        let sub = row
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
    /// One object, or its `status` or `scale`. 404 when it is not there.
    pub async fn get(&self, _: &Ctx, at: At<'_>, options: &GetOptions) -> Result<Object, Status> {
        let row = self.row(at.resource)?;
        check_verb(&row, &at, "get")?;
        let position = Params {
            resource_version: &options.resource_version,
            resource_version_match: "",
            limit: 0,
            continue_token: "",
            send_initial_events: None,
        };
        let fresh = position.get()?;
        let object = row
            .stored
            .cache
            .get(&suffix(&row, at.namespace, at.name), fresh)
            .await
            .map_err(|e| e.status())?
            .ok_or_else(|| Status::not_found(&row.kind.gvr, at.name))?;
        match (at.subresource, &row.kind.scale) {
            ("scale", Some(paths)) => {
                let parent = object.value().map_err(Status::internal)?;
                Object::from_value(&scale::of(paths, &parent)?).map_err(Status::internal)
            }
            ("" | "status", _) => shown(&row, object),
            // What is not stored is told by others.
            _ => Err(Status::no_such_path()),
        }
    }

    /// A page of a collection.
    pub async fn list(
        &self,
        _: &Ctx,
        at: At<'_>,
        options: &client::ListOptions,
    ) -> Result<ListReply, Status> {
        let row = self.row(at.resource)?;
        check_verb(&row, &at, "list")?;
        let position = params(options);
        let request = ListRequest {
            filter: filter(&row, &at, &options.label_selector, &options.field_selector)?,
            at: position.list()?,
            limit: position.limit,
        };
        let reply = row
            .stored
            .cache
            .list(request)
            .await
            .map_err(|e| e.status())?;
        let items = if row.view == View::Stored {
            reply.items
        } else {
            let converted = reply.items.into_iter().map(|o| shown(&row, o));
            converted.collect::<Result<_, _>>()?
        };
        Ok(ListReply {
            items,
            revision: reply.revision,
            next: reply.next,
            remaining: reply.remaining,
            row,
        })
    }

    /// Changes of a collection.
    pub async fn watch(
        &self,
        _: &Ctx,
        at: At<'_>,
        options: &WatchOptions,
    ) -> Result<Watch, Status> {
        let row = self.row(at.resource)?;
        check_verb(&row, &at, "watch")?;
        let request = WatchRequest {
            filter: filter(&row, &at, &options.label_selector, &options.field_selector)?,
            start: watch_params(options).watch()?,
            bookmarks: options.bookmarks,
            deadline: Some(Instant::now() + options.timeout.unwrap_or_else(draw_timeout)),
        };
        let watcher = row
            .stored
            .cache
            .watch(request)
            .await
            .map_err(|e| e.status())?;
        let definition = row.definition.clone();
        Ok(Watch {
            watcher,
            row,
            definition,
        })
    }
}

/// Resolves when the definition of a custom resource has changed or gone.
async fn redefined(definition: &mut Option<watch::Receiver<()>>) {
    match definition {
        // Nothing is ever sent: the end of the sender is the signal.
        Some(definition) => while definition.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

fn draw_timeout() -> Duration {
    WATCH_MIN.mul_f64(1.0 + rand::rng().random::<f64>())
}

/// Selectors as the watch cache wants them: the cheap parts apart.
fn filter(row: &Row, at: &At<'_>, labels: &str, fields: &str) -> Result<Filter, Status> {
    let labels = LabelSelector::parse(labels).map_err(Status::bad_request)?;
    let fields = FieldSelector::parse(fields).map_err(Status::bad_request)?;
    let mut filter = Filter {
        namespace: (row.kind.namespaced && !at.namespace.is_empty())
            .then(|| at.namespace.to_owned()),
        name: (!at.name.is_empty()).then(|| at.name.to_owned()),
        matches: None,
    };
    let mut used: Vec<Field> = Vec::new();
    let mut rest = false;
    for requirement in fields.requirements() {
        match (requirement.field.as_str(), requirement.equal) {
            ("metadata.name", true) if filter.name.is_none() => {
                filter.name = Some(requirement.value.clone());
            }
            ("metadata.name" | "metadata.namespace", _) => rest = true,
            (label, _) => {
                let field = row
                    .fields
                    .iter()
                    .find(|f| f.label == label)
                    .ok_or_else(|| {
                        Status::bad_request(format!("field label not supported: {label}"))
                    })?;
                used.push(field.clone());
                rest = true;
            }
        }
    }
    let labelled = !labels.is_everything();
    if labelled || rest {
        let predicate: Predicate = Arc::new(move |object: &Object| {
            labels.matches(|key| object.head().label(key))
                && (!rest || fields.matches(|label| field_of(&used, object, label)))
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

/// A running watch. Dropping it ends it.
pub struct Watch {
    watcher: Watcher,
    row: Arc<Row>,
    definition: Option<watch::Receiver<()>>,
}

/// What a watch delivers.
pub enum Item {
    Event(Event),
    /// Everything up to `revision` was sent; `initial_end` marks the end of the
    /// present state.
    Bookmark {
        revision: u64,
        initial_end: bool,
    },
}

/// One change, in the version that was asked for.
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

    /// `{"type":…,"object":…}` and a line feed; shared by all watchers of the
    /// stored version.
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
    /// The next change; `None` at the end, which a change of the definition brings
    /// early. After an error it is over. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Item, Status>> {
        let item = tokio::select! {
            biased;
            () = redefined(&mut self.definition) => return None,
            item = self.watcher.next() => item?,
        };
        Some(self.convert(item))
    }

    /// What is there without waiting.
    pub fn try_next(&mut self) -> Option<Result<Item, Status>> {
        let definition = self.definition.as_ref();
        if definition.is_some_and(|d| d.has_changed().is_err()) {
            return None;
        }
        let item = self.watcher.try_next()?;
        Some(self.convert(item))
    }

    /// What is watched.
    pub fn row(&self) -> &Arc<Row> {
        &self.row
    }

    /// The kind of the objects, for bookmarks.
    pub fn kind(&self) -> &Gvk {
        &self.row.kind.gvk
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
            watchcache::Item::Event(delivery) if self.row.view == View::Stored => {
                Ok(Item::Event(Event(Inner::Shared(delivery))))
            }
            watchcache::Item::Event(delivery) => Ok(Item::Event(Event(Inner::Converted {
                change: delivery.change(),
                object: shown(&self.row, delivery.object().clone())?,
                frame: OnceLock::new(),
            }))),
        }
    }
}
