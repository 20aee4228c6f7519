//! The [`Cacher`] of one storage prefix, as in `apiserver/pkg/storage/cacher`: it serves
//! gets, lists and watches, and decides whether the cache or the store answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use machinery::Object;
use parking_lot::Mutex;
use storage::ConsistentReadSupport;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cache_size::CacheSize;
use crate::error::Error;
use crate::event::decode;
use crate::reflector;
use crate::snapshot::CacheSnapshot;
use crate::watch_cache::{CacheCounters, CachePhase, WatchCache};

/// The interval at which the store is polled for a revision that does not exist yet.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The lowest revision at which a read may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFreshness {
    /// A consistent read, which includes every write acknowledged before it
    /// (resourceVersion unset).
    Newest,
    /// Any state that the cache has (resourceVersion `0`).
    Any,
    /// A state not older than a revision.
    AtLeast(u64),
}

/// The cache of one storage prefix.
pub struct Cacher {
    pub(crate) cache: Arc<WatchCache>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Counters of one cache, or sums over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCacheStats {
    pub objects: usize,
    pub watchers: usize,
    /// Watchers that ended early: their history was compacted, or the cache lost the
    /// store.
    pub terminated: u64,
    /// How often the cache was filled from the store.
    pub fills: u64,
    /// Events received from the store.
    pub events: u64,
    /// Watch frames encoded.
    pub encodings: u64,
    /// How often a watcher was behind the ring and read the store's history.
    pub from_history: u64,
    /// Lists answered by the cache, and by the store.
    pub lists: u64,
    pub lists_from_store: u64,
    /// Objects in all lists.
    pub listed_objects: u64,
    /// Consistent reads answered by the cache, and those answered by the store because
    /// the cache was not fresh in time.
    pub consistent_from_cache: u64,
    pub consistent_from_store: u64,
    pub ring_events: usize,
    pub ring_bytes: usize,
}

impl std::ops::AddAssign<&WatchCacheStats> for WatchCacheStats {
    fn add_assign(&mut self, other: &Self) {
        self.objects += other.objects;
        self.watchers += other.watchers;
        self.terminated += other.terminated;
        self.fills += other.fills;
        self.events += other.events;
        self.encodings += other.encodings;
        self.from_history += other.from_history;
        self.lists += other.lists;
        self.lists_from_store += other.lists_from_store;
        self.listed_objects += other.listed_objects;
        self.consistent_from_cache += other.consistent_from_cache;
        self.consistent_from_store += other.consistent_from_store;
        self.ring_events += other.ring_events;
        self.ring_bytes += other.ring_bytes;
    }
}

impl Cacher {
    pub(crate) fn new(cache: Arc<WatchCache>) -> Self {
        Self {
            cache,
            stop: watch::Sender::new(false),
            task: Mutex::new(None),
        }
    }

    /// Starts the reflector task, once.
    pub(crate) fn start(&self) {
        if self.cache.uncached {
            return;
        }
        let mut task = self.task.lock();
        if task.is_none() && !*self.stop.borrow() {
            let run = reflector::run(Arc::clone(&self.cache), self.stop.subscribe());
            *task = Some(tokio::spawn(run));
        }
    }

    pub(crate) fn close(&self) {
        // Under the task's lock, so that no task starts after this.
        let _task = self.task.lock();
        self.stop.send_replace(true);
        self.cache.invalidate();
    }

    pub(crate) async fn join(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task
            && let Err(e) = task.await
        {
            tracing::error!(prefix = self.prefix(), why = %e, "cache task failed");
        }
        // The task may have installed a snapshot after `close`.
        self.cache.invalidate();
    }

    /// The storage prefix, which ends with a slash.
    pub fn prefix(&self) -> &str {
        &self.cache.prefix
    }

    /// Whether the cache can answer reads now.
    pub fn ready(&self) -> bool {
        self.start();
        self.cache.state.read().phase == CachePhase::Ready
    }

    /// The revision of the cache; 0 before it was filled.
    pub fn revision(&self) -> u64 {
        self.cache.state.read().newest.revision
    }

    /// Decodes an object that the caller has written and the store has acknowledged. The
    /// cache and the caller share the decoded object; the first of the two decodes it.
    pub fn decode_written(
        &self,
        key: &Arc<str>,
        value: &[u8],
        revision: u64,
    ) -> Result<Object, Error> {
        if let Some(present) = self.cache.get_exact(key, revision) {
            return Ok(present);
        }
        let object = decode(key, value, revision).map_err(|corrupt| Error::from(&*corrupt))?;
        if !self.cache.uncached {
            self.cache.decoded_writes.push(key, &object);
        }
        Ok(object)
    }

    /// The number of objects; `None` when it is unknown.
    pub fn len(&self) -> Option<usize> {
        let state = self.cache.state.read();
        (!self.cache.uncached && state.phase == CachePhase::Ready).then(|| state.newest.map.size())
    }

    /// Whether there are no objects; `None` when it is unknown.
    pub fn is_empty(&self) -> Option<bool> {
        self.len().map(|len| len == 0)
    }

    /// The size that counts for the limit; nothing without one.
    pub fn size(&self) -> CacheSize {
        self.cache.state.read().size.size()
    }

    pub fn stats(&self) -> WatchCacheStats {
        let counters = &self.cache.counters;
        let (objects, ring_events) = {
            let state = self.cache.state.read();
            (state.newest.map.size(), state.ring.len())
        };
        WatchCacheStats {
            objects,
            watchers: counters.watchers.load(Ordering::Relaxed),
            terminated: counters.terminated.load(Ordering::Relaxed),
            fills: counters.fills.load(Ordering::Relaxed),
            events: counters.events.load(Ordering::Relaxed),
            encodings: counters.encodings.load(Ordering::Relaxed),
            from_history: counters.from_history.load(Ordering::Relaxed),
            lists: counters.lists.load(Ordering::Relaxed),
            lists_from_store: counters.lists_from_store.load(Ordering::Relaxed),
            listed_objects: counters.listed_objects.load(Ordering::Relaxed),
            consistent_from_cache: counters.consistent_from_cache.load(Ordering::Relaxed),
            consistent_from_store: counters.consistent_from_store.load(Ordering::Relaxed),
            ring_events,
            ring_bytes: self.cache.ring_bytes.load(Ordering::Relaxed),
        }
    }

    /// Gets one object by its key below the prefix (`ns/name`, or `name`).
    pub async fn get(&self, suffix: &str, fresh: ReadFreshness) -> Result<Option<Object>, Error> {
        let key = format!("{}{suffix}", self.prefix());
        // One round trip, where a consistent read from the cache takes two.
        let direct = fresh == ReadFreshness::Newest
            && self.cache.store.consistent_read_support() == ConsistentReadSupport::ProgressRequest;
        let state = if direct && !*self.stop.borrow() {
            None
        } else {
            self.snapshot_for(fresh).await?
        };
        let snapshot = match state {
            Some(snapshot) => snapshot,
            None => {
                let read = self.cache.store.get(&key).await;
                let entry = read.map_err(Error::Storage)?;
                let slot = entry.map(|e| decode(&e.key, &e.value, e.mod_revision));
                return slot.transpose().map_err(|corrupt| (&*corrupt).into());
            }
        };
        let slot = snapshot.map.get(&*key).cloned();
        slot.transpose().map_err(|corrupt| (&*corrupt).into())
    }

    /// Gets one object from the cache, which may be outdated, without waiting; `None` also while
    /// the cache is not filled.
    pub fn get_if_filled(&self, suffix: &str) -> Result<Option<Object>, Error> {
        self.start();
        if *self.stop.borrow() {
            return Err(Error::NotReady);
        }
        let Ok(snapshot) = self.cache.snapshot() else {
            return Ok(None);
        };
        let key = format!("{}{suffix}", self.prefix());
        let slot = snapshot.map.get(&*key).cloned();
        slot.transpose().map_err(|corrupt| (&*corrupt).into())
    }

    /// A snapshot that is fresh enough; `None` when the caller must read the newest state
    /// from the store.
    pub(crate) async fn snapshot_for(
        &self,
        fresh: ReadFreshness,
    ) -> Result<Option<CacheSnapshot>, Error> {
        self.start();
        if self.cache.uncached {
            if *self.stop.borrow() {
                return Err(Error::NotReady);
            }
            if let ReadFreshness::AtLeast(revision) = fresh {
                let reached = self.wait_for_store(revision).await;
                reached.map_err(|error| self.expired_if_foreign(error))?;
            }
            return Ok(None);
        }
        match fresh {
            ReadFreshness::Any => match self.cache.wait_for(0).await {
                Err(Error::NotReady) if self.is_unconvertible() => return Ok(None),
                other => other?,
            },
            ReadFreshness::AtLeast(revision) => match self.wait_for_revision(revision).await {
                Err(Error::NotReady) if self.is_unconvertible() => {
                    self.wait_for_store(revision).await?;
                    return Ok(None);
                }
                reached => {
                    if !reached.map_err(|error| self.expired_if_foreign(error))? {
                        return Ok(None);
                    }
                }
            },
            ReadFreshness::Newest if !self.supports_consistent_reads() => {
                if *self.stop.borrow() {
                    return Err(Error::NotReady);
                }
                self.increment(|c| &c.consistent_from_store, 1);
                return Ok(None);
            }
            ReadFreshness::Newest => match self.wait_for_newest().await {
                // The cache is not fresh in time, so the store answers.
                Err(Error::TooLargeResourceVersion { .. } | Error::NotReady)
                    if !*self.stop.borrow() =>
                {
                    self.increment(|c| &c.consistent_from_store, 1);
                    return Ok(None);
                }
                other => {
                    other?;
                    self.increment(|c| &c.consistent_from_cache, 1);
                }
            },
        }
        self.cache.snapshot().map(Some)
    }

    /// Whether the store answers reads because the cache cannot be filled.
    fn is_unconvertible(&self) -> bool {
        !*self.stop.borrow() && self.cache.state.read().phase == CachePhase::Unconvertible
    }

    pub(crate) fn increment(&self, counter: impl Fn(&CacheCounters) -> &AtomicU64, amount: u64) {
        counter(&self.cache.counters).fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) async fn wait_for_newest(&self) -> Result<(), Error> {
        let revision = self.cache.store.prefix_revision(self.prefix()).await;
        self.cache.wait_for(revision.map_err(Error::Storage)?).await
    }

    /// Whether the cache can wait for the progress of its watch.
    pub(crate) fn supports_consistent_reads(&self) -> bool {
        self.cache.store.consistent_read_support() != ConsistentReadSupport::Unsupported
    }

    /// Fails if a client cannot have read a revision here: it lists again then.
    pub(crate) async fn check_watch_start(&self, revision: u64) -> Result<(), Error> {
        let floor = self.cache.watch_floor();
        if floor == 0 {
            return Ok(());
        }
        if revision < floor {
            return Err(Error::Expired {
                requested: revision,
                oldest: floor,
                next: None,
            });
        }
        let reached = match self.cache.uncached {
            true => self.wait_for_store(revision).await,
            false => self.wait_for_revision(revision).await.map(drop),
        };
        reached.map_err(|error| self.expired_if_foreign(error))
    }

    /// A revision that this store has not reached is one of another server, if clients may know
    /// such: it expires, so that they need not repeat the request.
    pub(crate) fn expired_if_foreign(&self, error: Error) -> Error {
        match (error, self.cache.watch_floor()) {
            (Error::TooLargeResourceVersion { requested, .. }, floor) if floor > 0 => {
                Error::Expired {
                    requested,
                    oldest: floor,
                    next: None,
                }
            }
            (error, _) => error,
        }
    }

    /// Waits until the cache has reached a revision and returns true. Where watch progress
    /// is not reliable it waits for the store instead and returns false.
    pub(crate) async fn wait_for_revision(&self, revision: u64) -> Result<bool, Error> {
        if self.cache.has_reached(revision) {
            return Ok(true);
        }
        match self.cache.store.consistent_read_support() {
            ConsistentReadSupport::Local => self.cache.wait_for(revision).await?,
            ConsistentReadSupport::ProgressRequest => tokio::select! {
                reached = self.cache.wait_for(revision) => reached?,
                never = self.request_progress() => match never {},
            },
            ConsistentReadSupport::Unsupported => {
                self.wait_for_store(revision).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends progress requests until it is dropped.
    async fn request_progress(&self) -> Infallible {
        loop {
            if let Err(e) = self.cache.store.prefix_revision(self.prefix()).await {
                tracing::debug!(prefix = self.prefix(), why = %e, "no progress");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the store has reached a revision.
    pub(crate) async fn wait_for_store(&self, revision: u64) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + self.cache.config.read_timeout;
        loop {
            let current = self.cache.store.revision().await.map_err(Error::Storage)?;
            if current >= revision {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::TooLargeResourceVersion {
                    requested: revision,
                    current,
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
