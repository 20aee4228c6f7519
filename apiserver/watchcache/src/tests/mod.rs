//! Tests of complete caches on a fake store whose delays and faults the test controls.

mod engine;
mod fresh;
mod lists;
mod model;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use storage::{Batch, Entry, Error, Event, Feed, Outcome, Page, Proof, Range, Result, Store, Txn};
use tokio::sync::watch;

use crate::{Cache, Config, Filter, Hub, Item, Start, WatchRequest, Watcher};

pub(crate) const PREFIX: &str = "/registry/things/";

/// A fake store with its history in memory.
#[derive(Default)]
pub(crate) struct Fake {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    revision: u64,
    log: Vec<Event>,
    compacted: u64,
    /// Counts the breaks; a watch ends at the next one.
    breaks: u64,
    /// Watches deliver nothing after this revision.
    withheld: Option<u64>,
    /// Every call fails.
    offline: bool,
    ranges: usize,
    /// `None`: local.
    proof: Option<Proof>,
    /// The revision of the last progress request; watches report progress up to it.
    asked: u64,
}

impl Inner {
    fn state(&self, at: u64) -> BTreeMap<Arc<str>, Entry> {
        let mut state = BTreeMap::new();
        for event in self.log.iter().filter(|e| e.revision <= at) {
            match &event.value {
                Some(value) => {
                    let entry = Entry {
                        key: Arc::clone(&event.key),
                        value: value.clone(),
                        revision: event.revision,
                    };
                    state.insert(Arc::clone(&event.key), entry);
                }
                None => {
                    state.remove(&event.key);
                }
            }
        }
        state
    }

    fn record(&mut self, key: &str, value: Option<Bytes>) {
        let previous = self.state(self.revision).remove(key);
        self.log.push(Event {
            key: key.into(),
            revision: self.revision,
            value,
            previous,
        });
    }

    fn online(&self) -> Result<()> {
        if self.offline {
            return Err(Error::Unavailable("offline".into()));
        }
        Ok(())
    }
}

impl Fake {
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let out = change(&mut self.inner.lock());
        self.changed.send_modify(|n| *n += 1);
        out
    }

    /// Several keys at one revision; `None` deletes.
    pub(crate) fn write(&self, changes: &[(&str, Option<String>)]) -> u64 {
        self.change(|inner| {
            inner.revision += 1;
            for (suffix, value) in changes {
                let value = value.clone().map(Bytes::from);
                inner.record(&format!("{PREFIX}{suffix}"), value);
            }
            inner.revision
        })
    }

    /// Writes an object `ns/name` with label `app`.
    pub(crate) fn put(&self, suffix: &str, app: &str) -> u64 {
        self.write(&[(suffix, Some(json(suffix, app)))])
    }

    pub(crate) fn delete(&self, suffix: &str) -> u64 {
        self.write(&[(suffix, None)])
    }

    /// A write to another resource.
    pub(crate) fn elsewhere(&self) -> u64 {
        self.change(|inner| {
            inner.revision += 1;
            inner.record("/registry/others/x", Some(Bytes::from_static(b"{}")));
            inner.revision
        })
    }

    pub(crate) fn break_feeds(&self) {
        self.change(|inner| inner.breaks += 1);
    }

    pub(crate) fn set_offline(&self, offline: bool) {
        self.change(|inner| inner.offline = offline);
    }

    pub(crate) fn withhold(&self, after: Option<u64>) {
        self.change(|inner| inner.withheld = after);
    }

    /// Sets the support for consistent reads.
    pub(crate) fn prove(&self, proof: Proof) {
        self.change(|inner| {
            inner.proof = Some(proof);
            inner.asked = inner.revision;
        });
    }

    pub(crate) fn compact_to(&self, revision: u64) {
        self.change(|inner| inner.compacted = inner.compacted.max(revision));
    }

    /// The number of range requests.
    pub(crate) fn ranges(&self) -> usize {
        self.inner.lock().ranges
    }

    pub(crate) fn now(&self) -> u64 {
        self.inner.lock().revision
    }
}

struct FakeFeed {
    store: Arc<Inside>,
    prefix: String,
    reached: u64,
    breaks: u64,
    changed: watch::Receiver<u64>,
}

/// The fake store as a [`Store`].
pub(crate) struct Inside(pub(crate) Arc<Fake>);

#[async_trait]
impl Feed for FakeFeed {
    async fn next(&mut self) -> Result<Batch> {
        loop {
            self.changed.mark_unchanged();
            {
                let inner = self.store.0.inner.lock();
                if inner.offline || inner.breaks != self.breaks {
                    return Err(Error::Unavailable("watch broke".into()));
                }
                if self.reached < inner.compacted {
                    return Err(Error::Compacted {
                        at: inner.compacted,
                    });
                }
                let upto = inner.withheld.unwrap_or(u64::MAX).min(inner.revision);
                if upto > self.reached {
                    let new = |e: &&Event| e.revision > self.reached && e.revision <= upto;
                    let events = inner.log.iter().filter(new);
                    let events = events.filter(|e| e.key.starts_with(&self.prefix));
                    let events: Vec<Event> = events.cloned().collect();
                    let last = events.last().map_or(self.reached, |e| e.revision);
                    let revision = match inner.proof.unwrap_or(Proof::Free) {
                        Proof::Free => upto,
                        Proof::Asked => last.max(inner.asked.min(upto)),
                        Proof::None => last,
                    };
                    if revision > self.reached {
                        self.reached = revision;
                        return Ok(Batch { events, revision });
                    }
                }
            }
            let _ = self.changed.changed().await;
        }
    }
}

#[async_trait]
impl Store for Inside {
    fn proof(&self) -> Proof {
        self.0.inner.lock().proof.unwrap_or(Proof::Free)
    }

    async fn revision(&self) -> Result<u64> {
        self.0.change(|inner| {
            inner.online()?;
            inner.asked = inner.revision;
            Ok(inner.revision)
        })
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let inner = self.0.inner.lock();
        inner.online()?;
        Ok(inner.state(inner.revision).remove(key))
    }

    async fn range(&self, range: &Range) -> Result<Page> {
        let mut inner = self.0.inner.lock();
        inner.online()?;
        inner.ranges += 1;
        let at = if range.at == 0 {
            inner.revision
        } else {
            range.at
        };
        if at < inner.compacted {
            return Err(Error::Compacted {
                at: inner.compacted,
            });
        }
        if at > inner.revision {
            return Err(Error::Future {
                asked: at,
                current: inner.revision,
            });
        }
        let state = inner.state(at).into_values();
        let mut entries: Vec<Entry> = state
            .filter(|e| *range.start <= *e.key && *e.key < *range.end)
            .collect();
        let all = entries.len();
        if range.limit > 0 {
            entries.truncate(range.limit);
        }
        Ok(Page {
            remaining: (all - entries.len()) as u64,
            entries,
            revision: at,
        })
    }

    async fn commit(&self, _: Txn) -> Result<Outcome> {
        Err(Error::Unavailable("tests write by `write`".into()))
    }

    async fn watch(&self, prefix: &str, after: u64) -> Result<Box<dyn Feed>> {
        let inner = self.0.inner.lock();
        inner.online()?;
        if after < inner.compacted {
            return Err(Error::Compacted {
                at: inner.compacted,
            });
        }
        if after > inner.revision {
            return Err(Error::Future {
                asked: after,
                current: inner.revision,
            });
        }
        Ok(Box::new(FakeFeed {
            store: Arc::new(Self(Arc::clone(&self.0))),
            prefix: prefix.to_owned(),
            reached: after,
            breaks: inner.breaks,
            changed: self.0.changed.subscribe(),
        }))
    }

    async fn compact(&self, revision: u64) -> Result<()> {
        self.0.compact_to(revision);
        Ok(())
    }
}

/// A stored object.
pub(crate) fn json(suffix: &str, app: &str) -> String {
    let (namespace, name) = suffix.split_once('/').unwrap_or(("", suffix));
    format!(
        r#"{{"kind":"Thing","apiVersion":"v1","metadata":{{"namespace":"{namespace}","name":"{name}","labels":{{"app":"{app}"}}}}}}"#
    )
}

pub(crate) struct Bed {
    pub(crate) store: Arc<Fake>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) cache: Arc<Cache>,
}

impl Bed {
    pub(crate) fn with(ring_bytes: usize, uncached: bool) -> Self {
        let store = Arc::new(Fake::default());
        let config = Config {
            ring_bytes,
            ..Config::default()
        };
        let hub = Hub::new(Arc::new(Inside(Arc::clone(&store))), config);
        let cache = if uncached {
            hub.uncached(PREFIX)
        } else {
            hub.resource(PREFIX)
        };
        Self { store, hub, cache }
    }

    /// A cached prefix with a large ring.
    pub(crate) fn new() -> Self {
        Self::with(32 << 20, false)
    }

    pub(crate) async fn watch(&self, filter: Filter, start: Start) -> Watcher {
        self.try_watch(filter, start, true).await.unwrap()
    }

    pub(crate) async fn try_watch(
        &self,
        filter: Filter,
        start: Start,
        bookmarks: bool,
    ) -> std::result::Result<Watcher, crate::Error> {
        let request = WatchRequest {
            filter,
            start,
            bookmarks,
            deadline: None,
        };
        self.cache.watch(request).await
    }
}

/// Objects with this label.
pub(crate) fn labelled(app: &str) -> Filter {
    let app = app.to_owned();
    Filter {
        matches: Some(Arc::new(move |o| o.head().label("app") == Some(&app))),
        ..Filter::default()
    }
}

pub(crate) fn namespace(ns: &str) -> Filter {
    Filter {
        namespace: Some(ns.into()),
        ..Filter::default()
    }
}

pub(crate) fn named(ns: Option<&str>, name: &str) -> Filter {
    Filter {
        namespace: ns.map(str::to_owned),
        name: Some(name.into()),
        matches: None,
    }
}

/// The items that a watcher sends within two (paused) seconds, as `ADDED a/x@3`.
pub(crate) async fn drain(watcher: &mut Watcher) -> Vec<String> {
    let mut items = Vec::new();
    let end = tokio::time::Instant::now() + Duration::from_secs(2);
    loop {
        match tokio::time::timeout_at(end, watcher.next()).await {
            Err(_) => return items,
            Ok(None) => {
                items.push("END".into());
                return items;
            }
            Ok(Some(Err(e))) => items.push(format!("ERROR {e}")),
            Ok(Some(Ok(item))) => items.push(show(&item)),
        }
    }
}

pub(crate) fn show(item: &Item) -> String {
    match item {
        Item::Bookmark {
            revision,
            initial_end,
        } => format!(
            "BOOKMARK {revision}{}",
            if *initial_end { " end" } else { "" }
        ),
        Item::Event(delivery) => {
            let object = delivery.object();
            assert_eq!(delivery.revision(), object.revision());
            format!(
                "{} {}@{} {}",
                delivery.change().as_str(),
                object.head().key(),
                delivery.revision(),
                object.head().label("app").unwrap_or("-")
            )
        }
    }
}
