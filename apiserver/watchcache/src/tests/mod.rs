//! Tests of complete caches on a fake store whose delays and faults the test controls.

mod embedded;
mod freshness;
mod lists;
mod model;
mod similar_objects;
mod size_limit;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use storage::{
    ConsistentReadSupport, Error, KeyValue, RangeRequest, RangeResponse, SingleKeyTxn, Store,
    StoreEvent, StoreResult, StoreWatch, TxnResponse, WatchResponse,
};
use tokio::sync::watch;

use crate::{
    CacheWatcher, CacheWatcherItem, Cacher, CacherWatchRequest, SelectionPredicate,
    WatchCacheConfig, WatchCaches, WatchStart,
};

pub(crate) const PREFIX: &str = "/registry/things/";

/// A fake store with its history in memory.
#[derive(Default)]
pub(crate) struct FakeStorageEngine {
    inner: Mutex<FakeStorageState>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct FakeStorageState {
    revision: u64,
    log: Vec<StoreEvent>,
    compacted: u64,
    /// Counts the breaks; a watch ends at the next one.
    breaks: u64,
    /// Watches deliver nothing after this revision.
    delivered_up_to: Option<u64>,
    /// Every call fails.
    offline: bool,
    ranges: usize,
    /// `None`: local.
    consistent_read_support: Option<ConsistentReadSupport>,
    /// The revision of the last progress request; watches report progress up to it.
    requested_progress: u64,
}

impl FakeStorageState {
    fn state(&self, revision: u64) -> BTreeMap<Arc<str>, KeyValue> {
        let mut state = BTreeMap::new();
        for event in self.log.iter().filter(|e| e.revision <= revision) {
            match &event.value {
                Some(value) => {
                    let entry = KeyValue {
                        key: Arc::clone(&event.key),
                        value: value.clone(),
                        mod_revision: event.revision,
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
        self.log.push(StoreEvent {
            key: key.into(),
            revision: self.revision,
            value,
            previous,
        });
    }

    fn online(&self) -> StoreResult<()> {
        if self.offline {
            return Err(Error::Unavailable("offline".into()));
        }
        Ok(())
    }
}

impl FakeStorageEngine {
    fn change<T>(&self, change: impl FnOnce(&mut FakeStorageState) -> T) -> T {
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
        self.write(&[(suffix, Some(thing_json(suffix, app)))])
    }

    pub(crate) fn delete(&self, suffix: &str) -> u64 {
        self.write(&[(suffix, None)])
    }

    /// A write to another resource.
    pub(crate) fn write_other_resource(&self) -> u64 {
        self.change(|inner| {
            inner.revision += 1;
            inner.record("/registry/others/x", Some(Bytes::from_static(b"{}")));
            inner.revision
        })
    }

    pub(crate) fn break_watches(&self) {
        self.change(|inner| inner.breaks += 1);
    }

    pub(crate) fn set_offline(&self, offline: bool) {
        self.change(|inner| inner.offline = offline);
    }

    pub(crate) fn stall_after(&self, after: Option<u64>) {
        self.change(|inner| inner.delivered_up_to = after);
    }

    /// Sets the support for consistent reads.
    pub(crate) fn set_consistent_read_support(&self, proof: ConsistentReadSupport) {
        self.change(|inner| {
            inner.consistent_read_support = Some(proof);
            inner.requested_progress = inner.revision;
        });
    }

    pub(crate) fn compact_to(&self, revision: u64) {
        self.change(|inner| inner.compacted = inner.compacted.max(revision));
    }

    /// The number of range requests.
    pub(crate) fn range_count(&self) -> usize {
        self.inner.lock().ranges
    }

    pub(crate) fn revision(&self) -> u64 {
        self.inner.lock().revision
    }
}

struct FakeStoreWatch {
    store: Arc<FakeStoreAdapter>,
    prefix: String,
    reached: u64,
    breaks: u64,
    changed: watch::Receiver<u64>,
}

/// The fake store as a [`Store`].
pub(crate) struct FakeStoreAdapter(pub(crate) Arc<FakeStorageEngine>);

#[async_trait]
impl StoreWatch for FakeStoreWatch {
    async fn next(&mut self) -> StoreResult<WatchResponse> {
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
                let upto = inner
                    .delivered_up_to
                    .unwrap_or(u64::MAX)
                    .min(inner.revision);
                if upto > self.reached {
                    let new = |e: &&StoreEvent| e.revision > self.reached && e.revision <= upto;
                    let events = inner.log.iter().filter(new);
                    let events = events.filter(|e| e.key.starts_with(&self.prefix));
                    let events: Vec<StoreEvent> = events.cloned().collect();
                    let last = events.last().map_or(self.reached, |e| e.revision);
                    let revision = match inner
                        .consistent_read_support
                        .unwrap_or(ConsistentReadSupport::Local)
                    {
                        ConsistentReadSupport::Local => upto,
                        ConsistentReadSupport::ProgressRequest => {
                            last.max(inner.requested_progress.min(upto))
                        }
                        ConsistentReadSupport::Unsupported => last,
                    };
                    if revision > self.reached {
                        self.reached = revision;
                        return Ok(WatchResponse { events, revision });
                    }
                }
            }
            let _ = self.changed.changed().await;
        }
    }
}

#[async_trait]
impl Store for FakeStoreAdapter {
    fn consistent_read_support(&self) -> ConsistentReadSupport {
        self.0
            .inner
            .lock()
            .consistent_read_support
            .unwrap_or(ConsistentReadSupport::Local)
    }

    async fn revision(&self) -> StoreResult<u64> {
        self.0.change(|inner| {
            inner.online()?;
            inner.requested_progress = inner.revision;
            Ok(inner.revision)
        })
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let inner = self.0.inner.lock();
        inner.online()?;
        Ok(inner.state(inner.revision).remove(key))
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let mut inner = self.0.inner.lock();
        inner.online()?;
        inner.ranges += 1;
        let revision = if range.revision == 0 {
            inner.revision
        } else {
            range.revision
        };
        if revision < inner.compacted {
            return Err(Error::Compacted {
                at: inner.compacted,
            });
        }
        if revision > inner.revision {
            return Err(Error::Future {
                requested: revision,
                current: inner.revision,
            });
        }
        let state = inner.state(revision).into_values();
        let mut entries: Vec<KeyValue> = state
            .filter(|e| *range.start <= *e.key && *e.key < *range.end)
            .collect();
        let all = entries.len();
        if range.limit > 0 {
            entries.truncate(range.limit);
        }
        Ok(RangeResponse {
            remaining: (all - entries.len()) as u64,
            kvs: entries,
            revision,
        })
    }

    async fn commit(&self, _: SingleKeyTxn) -> StoreResult<TxnResponse> {
        Err(Error::Unavailable("tests write by `write`".into()))
    }

    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        let inner = self.0.inner.lock();
        inner.online()?;
        if after < inner.compacted {
            return Err(Error::Compacted {
                at: inner.compacted,
            });
        }
        if after > inner.revision {
            return Err(Error::Future {
                requested: after,
                current: inner.revision,
            });
        }
        Ok(Box::new(FakeStoreWatch {
            store: Arc::new(Self(Arc::clone(&self.0))),
            prefix: prefix.to_owned(),
            reached: after,
            breaks: inner.breaks,
            changed: self.0.changed.subscribe(),
        }))
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        self.0.compact_to(revision);
        Ok(())
    }
}

/// A stored object.
pub(crate) fn thing_json(suffix: &str, app: &str) -> String {
    let (namespace, name) = suffix.split_once('/').unwrap_or(("", suffix));
    format!(
        r#"{{"kind":"Thing","apiVersion":"v1","metadata":{{"namespace":"{namespace}","name":"{name}","labels":{{"app":"{app}"}}}}}}"#
    )
}

pub(crate) struct CacherFixture {
    pub(crate) store: Arc<FakeStorageEngine>,
    pub(crate) caches: Arc<WatchCaches>,
    pub(crate) cache: Arc<Cacher>,
}

impl CacherFixture {
    pub(crate) fn with_ring(ring_bytes: usize, uncached: bool) -> Self {
        let store = Arc::new(FakeStorageEngine::default());
        let config = WatchCacheConfig {
            ring_bytes,
            ..WatchCacheConfig::default()
        };
        let caches = WatchCaches::new(Arc::new(FakeStoreAdapter(Arc::clone(&store))), config);
        let cache = if uncached {
            caches.uncached(PREFIX)
        } else {
            caches.cacher(PREFIX)
        };
        Self {
            store,
            caches,
            cache,
        }
    }

    /// A cached prefix with a large ring.
    pub(crate) fn new() -> Self {
        Self::with_ring(32 << 20, false)
    }

    pub(crate) async fn watch(
        &self,
        filter: SelectionPredicate,
        start: WatchStart,
    ) -> CacheWatcher {
        self.try_watch(filter, start, true).await.unwrap()
    }

    pub(crate) async fn try_watch(
        &self,
        filter: SelectionPredicate,
        start: WatchStart,
        bookmarks: bool,
    ) -> Result<CacheWatcher, crate::Error> {
        let request = CacherWatchRequest {
            filter,
            start,
            bookmarks,
            deadline: None,
        };
        self.cache.watch(request).await
    }
}

/// Objects with this label.
pub(crate) fn labelled(app: &str) -> SelectionPredicate {
    let app = app.to_owned();
    SelectionPredicate {
        matches: Some(Arc::new(move |o| o.meta().label("app") == Some(&app))),
        ..SelectionPredicate::default()
    }
}

pub(crate) fn namespace(ns: &str) -> SelectionPredicate {
    SelectionPredicate {
        namespace: Some(ns.into()),
        ..SelectionPredicate::default()
    }
}

pub(crate) fn named(ns: Option<&str>, name: &str) -> SelectionPredicate {
    SelectionPredicate {
        namespace: ns.map(str::to_owned),
        name: Some(name.into()),
        matches: None,
    }
}

/// The items that a watcher sends within two (paused) seconds, as `ADDED a/x@3`.
pub(crate) async fn drain(watcher: &mut CacheWatcher) -> Vec<String> {
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

pub(crate) fn show(item: &CacheWatcherItem) -> String {
    match item {
        CacheWatcherItem::Bookmark {
            revision,
            initial_end,
        } => format!(
            "BOOKMARK {revision}{}",
            if *initial_end { " end" } else { "" }
        ),
        CacheWatcherItem::Event(delivery) => {
            let object = delivery.object();
            assert_eq!(delivery.revision(), object.revision());
            format!(
                "{} {}@{} {}",
                delivery.event_type().as_str(),
                object.meta().key(),
                delivery.revision(),
                object.meta().label("app").unwrap_or("-")
            )
        }
    }
}
