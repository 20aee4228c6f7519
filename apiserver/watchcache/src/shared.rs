//! The state that a [`Cacher`](crate::cacher::Cacher), its reflector and its watchers
//! share. Its lock is held for short pointer operations only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use machinery::Object;
use parking_lot::{Mutex, RwLock};
use storage::{Batch, Store};
use tokio::sync::{Notify, watch};

use crate::error::Error;
use crate::event::{Event, Slot, decode};
use crate::filter::last_segment;
use crate::hub::{Budget, Config};
use crate::ring::Ring;
use crate::snapshot::{Map, Snapshot, undo};

/// Past snapshots that are kept for paged lists.
const KEPT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not filled yet: readers wait.
    Filling,
    Ready,
    /// The watch broke and the cache is filled again; reads fail.
    Broken,
}

/// The progress that waiting readers observe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) phase: Phase,
    pub(crate) revision: u64,
}

impl Progress {
    fn is_at(&self, revision: u64) -> bool {
        self.phase == Phase::Ready && self.revision >= revision
    }
}

/// The watchers of one selection of keys. An event wakes only the scopes that include its
/// key.
pub(crate) struct Scope {
    pub(crate) notify: Notify,
    /// The position after the newest event of this scope.
    pub(crate) last: AtomicU64,
    /// Changed under the lock of the state.
    watchers: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) encodings: Arc<AtomicU64>,
    pub(crate) events: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) watchers: AtomicUsize,
    pub(crate) terminated: AtomicU64,
    pub(crate) from_history: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) lists_from_store: AtomicU64,
    pub(crate) listed: AtomicU64,
    pub(crate) proven: AtomicU64,
    pub(crate) unproven: AtomicU64,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    /// Counts invalidations; a watcher ends with its epoch.
    pub(crate) epoch: u64,
    pub(crate) now: Snapshot,
    pub(crate) ring: Ring,
    /// Past snapshots, ascending, none older than the ring.
    kept: VecDeque<Snapshot>,
    pub(crate) scopes: HashMap<Box<str>, Arc<Scope>>,
}

/// Own writes, decoded by their writers, that the watch has not delivered yet. An object
/// that the watch delivers before its writer adds it stays until newer ones displace it.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<VecDeque<(Arc<str>, Object)>>);

impl Ahead {
    const MOST: usize = 32;

    pub(crate) fn put(&self, key: &Arc<str>, object: &Object) {
        let mut all = self.0.lock();
        if all.len() == Self::MOST {
            all.pop_front();
        }
        all.push_back((Arc::clone(key), object.clone()));
    }

    fn take(&self, key: &str, revision: u64) -> Option<Object> {
        let mut all = self.0.lock();
        let at = all
            .iter()
            .position(|(k, o)| o.revision() == revision && **k == *key)?;
        all.remove(at).map(|(_, object)| object)
    }

    /// Removes all writes, since a new watch starts.
    fn clear(&self) {
        self.0.lock().clear();
    }
}

pub(crate) struct Shared {
    pub(crate) prefix: Box<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    /// Without map and ring: everything is read from the store.
    pub(crate) uncached: bool,
    pub(crate) counters: Counters,
    pub(crate) state: RwLock<State>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) ring_bytes: AtomicUsize,
    pub(crate) ahead: Ahead,
    budget: Arc<Budget>,
}

impl Shared {
    pub(crate) fn new(
        prefix: &str,
        store: Arc<dyn Store>,
        config: Config,
        uncached: bool,
        budget: Arc<Budget>,
    ) -> Arc<Self> {
        let phase = if uncached {
            Phase::Ready
        } else {
            Phase::Filling
        };
        Arc::new(Self {
            prefix: prefix.into(),
            store,
            config,
            uncached,
            counters: Counters::default(),
            state: RwLock::new(State {
                phase,
                epoch: 0,
                now: Snapshot {
                    map: Map::new_sync(),
                    revision: 0,
                },
                ring: Ring::default(),
                kept: VecDeque::new(),
                scopes: HashMap::new(),
            }),
            progress: watch::Sender::new(Progress { phase, revision: 0 }),
            ring_bytes: AtomicUsize::new(0),
            ahead: Ahead::default(),
            budget,
        })
    }

    /// Installs a new snapshot and admits readers.
    pub(crate) fn install(&self, now: Snapshot) {
        let revision = now.revision;
        let mut state = self.state.write();
        state.ring.restart(revision);
        let old = std::mem::replace(&mut state.now, now);
        state.phase = Phase::Ready;
        drop(state);
        drop(old);
        self.counters.fills.fetch_add(1, Ordering::Relaxed);
        self.progress.send_replace(Progress {
            phase: Phase::Ready,
            revision,
        });
    }

    /// Discards the state: watchers end, and reads fail until the next `install`.
    pub(crate) fn invalidate(&self) {
        let mut state = self.state.write();
        state.epoch += 1;
        state.phase = Phase::Broken;
        let revision = state.now.revision;
        let old = std::mem::replace(&mut state.now.map, Map::new_sync());
        let kept = std::mem::take(&mut state.kept);
        let ring = std::mem::take(&mut state.ring);
        // Positions must not repeat, or an old watcher would read wrong events.
        state.ring.restart_at(ring.head());
        let scopes: Vec<Arc<Scope>> = state.scopes.values().cloned().collect();
        self.budget.release(&self.ring_bytes, None);
        drop(state);
        self.ahead.clear();
        drop((old, kept, ring));
        self.progress.send_replace(Progress {
            phase: Phase::Broken,
            revision,
        });
        for scope in scopes {
            scope.notify.notify_waiters();
        }
    }

    /// Decodes a value of the watch, unless its writer has decoded it already.
    fn decoded(&self, key: &Arc<str>, value: &[u8], revision: u64) -> Slot {
        let ahead = self.ahead.take(key, revision);
        ahead.map_or_else(|| decode(key, value, revision), Ok)
    }

    /// The object at a key if the cache has exactly this revision of it.
    pub(crate) fn present(&self, key: &str, revision: u64) -> Option<Object> {
        let state = self.state.read();
        let found = state.now.map.get(key)?.as_ref().ok()?;
        (found.revision() == revision).then(|| found.clone())
    }

    /// Applies a watch response and wakes the watchers concerned.
    pub(crate) fn apply(&self, batch: Batch) {
        let decoded: Vec<(storage::Event, Option<Slot>)> = batch
            .events
            .into_iter()
            .map(|e| {
                let now = e
                    .value
                    .as_deref()
                    .map(|v| self.decoded(&e.key, v, e.revision));
                (e, now)
            })
            .collect();
        let mut woken: Vec<Arc<Scope>> = Vec::new();
        let mut weight = 0;
        let mut state = self.state.write();
        let before = state.now.revision;
        let mut reached = batch.revision.max(before);
        for (event, now) in decoded {
            // A watch does not repeat events; if one does, the first counts.
            if event.revision <= before {
                continue;
            }
            reached = reached.max(event.revision);
            let was = state.now.map.get(&*event.key).cloned();
            match &now {
                Some(slot) => state
                    .now
                    .map
                    .insert_mut(Arc::clone(&event.key), slot.clone()),
                None if was.is_none() => continue,
                None => {
                    state.now.map.remove_mut(&*event.key);
                }
            }
            let event = Arc::new(Event::new(
                event.revision,
                event.key,
                now,
                was,
                Arc::clone(&self.counters.encodings),
            ));
            weight += event.weight();
            self.counters.events.fetch_add(1, Ordering::Relaxed);
            state.file(&self.prefix, &event, &mut woken);
            state.ring.push(event);
        }
        state.now.revision = reached;
        // Under the lock, or an eviction could release bytes that are not yet charged.
        self.budget.charge(&self.ring_bytes, weight);
        drop(state);
        self.budget.trim();
        for scope in woken {
            scope.notify.notify_waiters();
        }
        if reached > before {
            self.progress.send_modify(|p| p.revision = reached);
        }
    }

    /// Drops the oldest revision of the ring and the snapshots that are older than the
    /// ring then. Returns whether anything was dropped.
    pub(crate) fn evict(&self) -> bool {
        let mut state = self.state.write();
        let freed = state.ring.evict();
        let floor = state.ring.floor();
        let old = state.kept.partition_point(|s| s.revision < floor);
        let dropped: Vec<Snapshot> = state.kept.drain(..old).collect();
        self.budget.release(&self.ring_bytes, Some(freed));
        drop(state);
        drop(dropped);
        freed > 0
    }

    /// The newest snapshot; fails while the cache is not ready.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        let state = self.state.read();
        match state.phase {
            Phase::Ready => Ok(state.now.clone()),
            Phase::Filling | Phase::Broken => Err(Error::NotReady),
        }
    }

    /// The snapshot at a revision that the cache has reached; `None` when it is older
    /// than the ring.
    pub(crate) fn snapshot_at(&self, revision: u64) -> Option<Snapshot> {
        let (mut past, events) = {
            let state = self.state.read();
            if state.phase != Phase::Ready
                || revision < state.ring.floor()
                || revision > state.now.revision
            {
                return None;
            }
            let next = state.kept.partition_point(|s| s.revision < revision);
            let base = state.kept.get(next).unwrap_or(&state.now).clone();
            let events: Vec<Arc<Event>> = state
                .ring
                .between(revision, base.revision)
                .cloned()
                .collect();
            (base, events)
        };
        undo(&mut past.map, &events);
        past.revision = revision;
        if !events.is_empty() {
            self.keep(&past);
        }
        Some(past)
    }

    /// Keeps a snapshot for the next page of a client.
    pub(crate) fn keep(&self, snapshot: &Snapshot) {
        let mut state = self.state.write();
        if state.phase != Phase::Ready || snapshot.revision < state.ring.floor() {
            return;
        }
        let at = state
            .kept
            .partition_point(|s| s.revision < snapshot.revision);
        if state.kept.get(at).map(|s| s.revision) == Some(snapshot.revision) {
            return;
        }
        state.kept.insert(at, snapshot.clone());
        if state.kept.len() > KEPT {
            state.kept.pop_front();
        }
    }

    /// Whether the cache has reached a revision.
    pub(crate) fn is_at(&self, revision: u64) -> bool {
        self.progress.borrow().is_at(revision)
    }

    /// Waits until the cache has reached a revision.
    pub(crate) async fn reached(&self, revision: u64) -> Result<(), Error> {
        if self.is_at(revision) {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|p| p.phase == Phase::Broken || p.is_at(revision));
        let outcome = tokio::time::timeout(self.config.wait, reached)
            .await
            .map(|reached| reached.map(|p| p.phase));
        match outcome {
            Ok(Ok(Phase::Ready)) => Ok(()),
            Ok(_) => Err(Error::NotReady),
            Err(_) => {
                let now = *self.progress.borrow();
                Err(match now.phase {
                    Phase::Ready => Error::TooLarge {
                        asked: revision,
                        current: now.revision,
                    },
                    Phase::Filling | Phase::Broken => Error::NotReady,
                })
            }
        }
    }
}

impl State {
    /// Records an event in the scopes that include its key. The event then gets the
    /// position at the ring's head.
    fn file(&self, prefix: &str, event: &Event, woken: &mut Vec<Arc<Scope>>) {
        if self.scopes.is_empty() {
            return;
        }
        let behind = self.ring.head() + 1;
        let suffix = event.key.strip_prefix(prefix).unwrap_or(&event.key);
        let mut hit = |scope: Option<&Arc<Scope>>| {
            if let Some(scope) = scope {
                scope.last.store(behind, Ordering::Relaxed);
                if !woken.iter().any(|w| Arc::ptr_eq(w, scope)) {
                    woken.push(Arc::clone(scope));
                }
            }
        };
        hit(self.scopes.get(""));
        // Most resources have only watchers of all namespaces.
        if self.scopes.len() > 1 || !self.scopes.contains_key("") {
            hit(self.scopes.get(suffix));
            hit(self.scopes.get(&*format!("/{}", last_segment(suffix))));
            if let Some(slash) = suffix.find('/') {
                hit(self.scopes.get(&suffix[..=slash]));
            }
        }
    }

    /// The scope of a new watcher.
    pub(crate) fn enter(&mut self, id: &str) -> Arc<Scope> {
        let head = self.ring.head();
        let scope = self.scopes.entry(id.into()).or_insert_with(|| {
            // Earlier events were not recorded, so assume that one was in this scope.
            Arc::new(Scope {
                notify: Notify::new(),
                last: AtomicU64::new(head),
                watchers: AtomicUsize::new(0),
            })
        });
        scope.watchers.fetch_add(1, Ordering::Relaxed);
        Arc::clone(scope)
    }

    /// The counterpart of [`Self::enter`].
    pub(crate) fn leave(&mut self, id: &str, scope: &Scope) {
        if scope.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.scopes.remove(id);
        }
    }
}
