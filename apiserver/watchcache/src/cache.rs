//! The [`Cacher`] of one storage prefix, as in `apiserver/pkg/storage/cacher`: it serves
//! gets, lists and watches, and decides whether the cache or the store answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use machinery::Object;
use parking_lot::Mutex;
use storage::Proof;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::event::decode;
use crate::fill;
use crate::shared::{Counters, Phase, Shared};
use crate::snapshot::Snapshot;

/// The interval at which the store is polled for a revision that does not exist yet.
const STEP: Duration = Duration::from_millis(100);

/// The lowest revision at which a read may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// A consistent read, which includes every write acknowledged before it
    /// (resourceVersion unset).
    Newest,
    /// Any state that the cache has (resourceVersion `0`).
    Any,
    /// A state not older than a revision.
    AtLeast(u64),
}

/// The cache of one storage prefix.
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Counters of one cache, or sums over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
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
    pub listed: u64,
    /// Consistent reads answered by the cache, and those answered by the store because
    /// the cache was not fresh in time.
    pub proven: u64,
    pub unproven: u64,
    pub ring_events: usize,
    pub ring_bytes: usize,
}

impl Stats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        self.watchers += other.watchers;
        self.terminated += other.terminated;
        self.fills += other.fills;
        self.events += other.events;
        self.encodings += other.encodings;
        self.from_history += other.from_history;
        self.lists += other.lists;
        self.lists_from_store += other.lists_from_store;
        self.listed += other.listed;
        self.proven += other.proven;
        self.unproven += other.unproven;
        self.ring_events += other.ring_events;
        self.ring_bytes += other.ring_bytes;
    }
}

impl Cache {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            stop: watch::Sender::new(false),
            task: Mutex::new(None),
        }
    }

    /// Starts the reflector task, once.
    pub(crate) fn start(&self) {
        if self.shared.uncached {
            return;
        }
        let mut task = self.task.lock();
        if task.is_none() && !*self.stop.borrow() {
            let run = fill::run(Arc::clone(&self.shared), self.stop.subscribe());
            *task = Some(tokio::spawn(run));
        }
    }

    pub(crate) fn close(&self) {
        // Under the task's lock, so that no task starts after this.
        let _task = self.task.lock();
        self.stop.send_replace(true);
        self.shared.invalidate();
    }

    pub(crate) async fn join(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task
            && let Err(why) = task.await
        {
            tracing::error!(prefix = self.prefix(), %why, "cache task failed");
        }
        // The task may have installed a snapshot after `close`.
        self.shared.invalidate();
    }

    /// The storage prefix, which ends with a slash.
    pub fn prefix(&self) -> &str {
        &self.shared.prefix
    }

    /// Whether the cache can answer reads now.
    pub fn ready(&self) -> bool {
        self.start();
        self.shared.state.read().phase == Phase::Ready
    }

    /// The revision of the cache; 0 before it was filled.
    pub fn revision(&self) -> u64 {
        self.shared.state.read().now.revision
    }

    /// Decodes an object that the caller has written and the store has acknowledged. The
    /// cache and the caller share the decoded object; the first of the two decodes it.
    pub fn written(&self, key: &Arc<str>, value: &[u8], revision: u64) -> Result<Object, Error> {
        if let Some(present) = self.shared.present(key, revision) {
            return Ok(present);
        }
        let object = decode(key, value, revision).map_err(|corrupt| Error::from(&*corrupt))?;
        if !self.shared.uncached {
            self.shared.ahead.put(key, &object);
        }
        Ok(object)
    }

    /// The number of objects; `None` when it is unknown.
    pub fn len(&self) -> Option<usize> {
        let state = self.shared.state.read();
        (!self.shared.uncached && state.phase == Phase::Ready).then(|| state.now.map.size())
    }

    /// Whether there are no objects; `None` when it is unknown.
    pub fn is_empty(&self) -> Option<bool> {
        self.len().map(|len| len == 0)
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let (objects, ring_events) = {
            let state = self.shared.state.read();
            (state.now.map.size(), state.ring.len())
        };
        Stats {
            objects,
            watchers: counters.watchers.load(Ordering::Relaxed),
            terminated: counters.terminated.load(Ordering::Relaxed),
            fills: counters.fills.load(Ordering::Relaxed),
            events: counters.events.load(Ordering::Relaxed),
            encodings: counters.encodings.load(Ordering::Relaxed),
            from_history: counters.from_history.load(Ordering::Relaxed),
            lists: counters.lists.load(Ordering::Relaxed),
            lists_from_store: counters.lists_from_store.load(Ordering::Relaxed),
            listed: counters.listed.load(Ordering::Relaxed),
            proven: counters.proven.load(Ordering::Relaxed),
            unproven: counters.unproven.load(Ordering::Relaxed),
            ring_events,
            ring_bytes: self.shared.ring_bytes.load(Ordering::Relaxed),
        }
    }

    /// Gets one object by its key below the prefix (`ns/name`, or `name`).
    pub async fn get(&self, suffix: &str, fresh: Freshness) -> Result<Option<Object>, Error> {
        let key = format!("{}{suffix}", self.prefix());
        // One round trip, where a consistent read from the cache takes two.
        let direct = fresh == Freshness::Newest && self.shared.store.proof() == Proof::Asked;
        let state = if direct && !*self.stop.borrow() {
            None
        } else {
            self.state(fresh).await?
        };
        let snapshot = match state {
            Some(snapshot) => snapshot,
            None => {
                let read = self.shared.store.get(&key).await;
                let entry = read.map_err(Error::Storage)?;
                let slot = entry.map(|e| decode(&e.key, &e.value, e.revision));
                return slot.transpose().map_err(|corrupt| (&*corrupt).into());
            }
        };
        let slot = snapshot.map.get(&*key).cloned();
        slot.transpose().map_err(|corrupt| (&*corrupt).into())
    }

    /// A snapshot that is fresh enough; `None` when the caller must read the newest state
    /// from the store.
    pub(crate) async fn state(&self, fresh: Freshness) -> Result<Option<Snapshot>, Error> {
        self.start();
        if self.shared.uncached {
            if *self.stop.borrow() {
                return Err(Error::NotReady);
            }
            if let Freshness::AtLeast(revision) = fresh {
                self.store_reached(revision).await?;
            }
            return Ok(None);
        }
        match fresh {
            Freshness::Any => self.shared.reached(0).await?,
            Freshness::AtLeast(revision) => {
                if !self.known(revision).await? {
                    return Ok(None);
                }
            }
            Freshness::Newest if !self.provable() => {
                if *self.stop.borrow() {
                    return Err(Error::NotReady);
                }
                self.count(|c| &c.unproven, 1);
                return Ok(None);
            }
            Freshness::Newest => match self.newest().await {
                // The cache is not fresh in time, so the store answers.
                Err(Error::TooLarge { .. } | Error::NotReady) if !*self.stop.borrow() => {
                    self.count(|c| &c.unproven, 1);
                    return Ok(None);
                }
                other => {
                    other?;
                    self.count(|c| &c.proven, 1);
                }
            },
        }
        self.shared.snapshot().map(Some)
    }

    pub(crate) fn count(&self, what: impl Fn(&Counters) -> &AtomicU64, by: u64) {
        what(&self.shared.counters).fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) async fn newest(&self) -> Result<(), Error> {
        let revision = self.shared.store.revision_of(self.prefix()).await;
        self.shared.reached(revision.map_err(Error::Storage)?).await
    }

    /// Whether the cache can wait for the progress of its watch.
    pub(crate) fn provable(&self) -> bool {
        self.shared.store.proof() != Proof::None
    }

    /// Waits until the cache has reached a revision and returns true. Where watch progress
    /// is not reliable it waits for the store instead and returns false.
    pub(crate) async fn known(&self, revision: u64) -> Result<bool, Error> {
        if self.shared.is_at(revision) {
            return Ok(true);
        }
        match self.shared.store.proof() {
            Proof::Free => self.shared.reached(revision).await?,
            Proof::Asked => tokio::select! {
                reached = self.shared.reached(revision) => reached?,
                never = self.ask() => match never {},
            },
            Proof::None => {
                self.store_reached(revision).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends progress requests until it is dropped.
    async fn ask(&self) -> Infallible {
        loop {
            if let Err(why) = self.shared.store.revision_of(self.prefix()).await {
                tracing::debug!(prefix = self.prefix(), %why, "no progress");
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// Waits until the store has reached a revision.
    pub(crate) async fn store_reached(&self, revision: u64) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + self.shared.config.wait;
        loop {
            let current = self.shared.store.revision().await.map_err(Error::Storage)?;
            if current >= revision {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::TooLarge {
                    asked: revision,
                    current,
                });
            }
            tokio::time::sleep(STEP).await;
        }
    }
}
