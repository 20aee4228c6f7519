//! The state that a [`Cacher`](crate::cacher::Cacher), its reflector and its watchers
//! share. Its lock is held for short pointer operations only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use machinery::{Object, SimilarObjects};
use parking_lot::{Mutex, RwLock};
use storage::{Store, StoreResult, WatchResponse};
use tokio::sync::{Notify, watch};

use crate::cache_size::{CacheSizeLimit, MeteredSize};
use crate::config::{CacherOptions, SimilarityGrouping, WatchCacheConfig};
use crate::error::Error;
use crate::event::{ObjectDecodeResult, WatchCacheEvent, decode};
use crate::event_ring::WatchEventRing;
use crate::filter::last_segment;
use crate::ring_budget::{EvictableRing, RingBudget};
use crate::snapshot::{CacheSnapshot, ObjectMap, revert};

/// Past snapshots that are kept for paged lists.
const MAX_KEPT_SNAPSHOTS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachePhase {
    /// Not filled yet: readers wait.
    Filling,
    Ready,
    /// The watch broke and the cache is filled again; reads fail.
    Broken,
    /// Values cannot be converted. The cache is filled when they can be; until then the
    /// store answers reads, with the reason where it fails.
    Unconvertible,
}

/// The progress that waiting readers observe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheProgress {
    pub(crate) phase: CachePhase,
    pub(crate) revision: u64,
}

impl CacheProgress {
    fn has_reached(&self, revision: u64) -> bool {
        self.phase == CachePhase::Ready && self.revision >= revision
    }
}

/// The watchers of one selection of keys. An event wakes only the scopes that include its
/// key.
pub(crate) struct WatchScopeNotifier {
    pub(crate) notify: Notify,
    /// The position after the newest event of this scope.
    pub(crate) last_position: AtomicU64,
    /// Changed under the lock of the state.
    watchers: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct CacheCounters {
    pub(crate) encodings: Arc<AtomicU64>,
    pub(crate) events: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) watchers: AtomicUsize,
    pub(crate) terminated: AtomicU64,
    pub(crate) from_history: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) lists_from_store: AtomicU64,
    pub(crate) listed_objects: AtomicU64,
    pub(crate) consistent_from_cache: AtomicU64,
    pub(crate) consistent_from_store: AtomicU64,
}

/// The objects, events and watchers of a [`WatchCache`], behind its lock.
pub(crate) struct WatchCacheState {
    pub(crate) phase: CachePhase,
    /// Counts invalidations; a watcher ends with its epoch.
    pub(crate) epoch: u64,
    pub(crate) newest: CacheSnapshot,
    /// Of the newest snapshot.
    pub(crate) size: MeteredSize,
    pub(crate) ring: WatchEventRing,
    /// Past snapshots, ascending, none older than the ring.
    past_snapshots: VecDeque<CacheSnapshot>,
    pub(crate) scopes: HashMap<Box<str>, Arc<WatchScopeNotifier>>,
}

/// Own writes, decoded by their writers, that the watch has not delivered yet. An object
/// that the watch delivers before its writer adds it stays until newer ones displace it.
#[derive(Default)]
pub(crate) struct DecodedWrites(Mutex<VecDeque<(Arc<str>, Object)>>);

impl DecodedWrites {
    const MAX_WRITES: usize = 32;

    pub(crate) fn push(&self, key: &Arc<str>, object: &Object) {
        let mut all = self.0.lock();
        if all.len() == Self::MAX_WRITES {
            all.pop_front();
        }
        all.push_back((Arc::clone(key), object.clone()));
    }

    fn take(&self, key: &str, revision: u64) -> Option<Object> {
        let mut writes = self.0.lock();
        let index = writes
            .iter()
            .position(|(k, o)| o.revision() == revision && **k == *key)?;
        writes.remove(index).map(|(_, object)| object)
    }

    /// Removes all writes, since a new watch starts.
    fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The cache of one resource: its objects and newest events, fed by one store watch.
pub(crate) struct WatchCache {
    pub(crate) prefix: Box<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: WatchCacheConfig,
    /// Without map and ring: everything is read from the store.
    pub(crate) uncached: bool,
    pub(crate) counters: CacheCounters,
    pub(crate) state: RwLock<WatchCacheState>,
    pub(crate) progress: watch::Sender<CacheProgress>,
    pub(crate) ring_bytes: AtomicUsize,
    pub(crate) decoded_writes: DecodedWrites,
    /// Where objects resemble each other.
    similar: Option<(SimilarityGrouping, SimilarObjects)>,
    limit: Option<Arc<dyn CacheSizeLimit>>,
    /// See [`crate::WatchCaches::expire_watches`]; 0: all clients know revisions of this store.
    watch_floor: AtomicU64,
    /// Watches of an earlier term end.
    watch_term: AtomicU64,
    budget: Arc<RingBudget>,
}

impl WatchCache {
    pub(crate) fn new(
        prefix: &str,
        store: Arc<dyn Store>,
        config: WatchCacheConfig,
        uncached: bool,
        budget: Arc<RingBudget>,
        options: CacherOptions,
    ) -> Arc<Self> {
        let phase = if uncached {
            CachePhase::Ready
        } else {
            CachePhase::Filling
        };
        Arc::new(Self {
            prefix: prefix.into(),
            store,
            config,
            uncached,
            counters: CacheCounters::default(),
            state: RwLock::new(WatchCacheState {
                phase,
                epoch: 0,
                newest: CacheSnapshot {
                    map: ObjectMap::new_sync(),
                    revision: 0,
                },
                size: MeteredSize::default(),
                ring: WatchEventRing::default(),
                past_snapshots: VecDeque::new(),
                scopes: HashMap::new(),
            }),
            progress: watch::Sender::new(CacheProgress { phase, revision: 0 }),
            ring_bytes: AtomicUsize::new(0),
            decoded_writes: DecodedWrites::default(),
            similar: options
                .similarity
                .map(|grouping| (grouping, SimilarObjects::new())),
            limit: options.limit,
            watch_floor: AtomicU64::new(0),
            watch_term: AtomicU64::new(0),
            budget,
        })
    }

    pub(crate) fn watch_floor(&self) -> u64 {
        self.watch_floor.load(Ordering::Acquire)
    }

    pub(crate) fn watch_term(&self) -> u64 {
        self.watch_term.load(Ordering::Acquire)
    }

    pub(crate) fn raise_watch_floor(&self, revision: u64) {
        self.watch_floor.fetch_max(revision, Ordering::AcqRel);
    }

    /// Ends the open watches with an error.
    pub(crate) fn expire_watches(&self) {
        self.watch_term.fetch_add(1, Ordering::AcqRel);
        let state = self.state.read();
        let scopes: Vec<Arc<WatchScopeNotifier>> = state.scopes.values().cloned().collect();
        drop(state);
        for scope in scopes {
            scope.notify.notify_waiters();
        }
    }

    /// The size of an empty snapshot.
    pub(crate) fn empty_size(&self) -> MeteredSize {
        MeteredSize::new(self.limit.as_ref())
    }

    /// Installs a new snapshot and admits readers.
    pub(crate) fn install(&self, now: CacheSnapshot, size: MeteredSize) {
        let revision = now.revision;
        let mut state = self.state.write();
        state.ring.reset(revision);
        let old = std::mem::replace(&mut state.newest, now);
        let old_size = std::mem::replace(&mut state.size, size);
        state.phase = CachePhase::Ready;
        drop(state);
        drop((old, old_size));
        self.counters.fills.fetch_add(1, Ordering::Relaxed);
        self.progress.send_replace(CacheProgress {
            phase: CachePhase::Ready,
            revision,
        });
    }

    /// Discards the state: watchers end, and reads fail until the next `install`.
    pub(crate) fn invalidate(&self) {
        let mut state = self.state.write();
        state.epoch += 1;
        state.phase = CachePhase::Broken;
        let revision = state.newest.revision;
        let old = std::mem::replace(&mut state.newest.map, ObjectMap::new_sync());
        let old_size = std::mem::take(&mut state.size);
        let snapshots = std::mem::take(&mut state.past_snapshots);
        let ring = std::mem::take(&mut state.ring);
        // Positions must not repeat, or an old watcher would read wrong events.
        state.ring.reset_at(ring.head());
        let scopes: Vec<Arc<WatchScopeNotifier>> = state.scopes.values().cloned().collect();
        self.budget.release(&self.ring_bytes, None);
        drop(state);
        self.decoded_writes.clear();
        drop((old, snapshots, ring));
        self.forget_similar_objects();
        drop(old_size);
        self.progress.send_replace(CacheProgress {
            phase: CachePhase::Broken,
            revision,
        });
        for scope in scopes {
            scope.notify.notify_waiters();
        }
    }

    /// Forgets what objects had in common that nothing holds any more.
    pub(crate) fn forget_similar_objects(&self) {
        if let Some((_, similar)) = &self.similar {
            similar.clear();
        }
    }

    /// Discards the state because values cannot be converted.
    pub(crate) fn set_unconvertible(&self) {
        self.invalidate();
        self.state.write().phase = CachePhase::Unconvertible;
        self.progress
            .send_modify(|p| p.phase = CachePhase::Unconvertible);
    }

    /// Decodes a value of the store, unless its writer has decoded it already.
    pub(crate) fn decode(&self, key: &Arc<str>, value: &[u8], revision: u64) -> ObjectDecodeResult {
        let decoded_write = self.decoded_writes.take(key, revision);
        let object = decoded_write.map_or_else(|| decode(key, value, revision), Ok)?;
        let Some((grouping, similar)) = &self.similar else {
            return Ok(object);
        };
        Ok(match grouping.group(key, &object) {
            Some(group) => similar.share(&group, object),
            None => object,
        })
    }

    /// The object at a key if the cache has exactly this revision of it.
    pub(crate) fn get_exact(&self, key: &str, revision: u64) -> Option<Object> {
        let state = self.state.read();
        let object = state.newest.map.get(key)?.as_ref().ok()?;
        (object.revision() == revision).then(|| object.clone())
    }

    /// Applies a watch response and wakes the watchers concerned. After an error, of the limit, the
    /// state is to be discarded.
    pub(crate) fn apply(&self, batch: WatchResponse) -> StoreResult<()> {
        let decoded: Vec<(storage::StoreEvent, Option<ObjectDecodeResult>)> = batch
            .events
            .into_iter()
            .map(|e| {
                let now = e
                    .value
                    .as_deref()
                    .map(|v| self.decode(&e.key, v, e.revision));
                (e, now)
            })
            .collect();
        let mut scopes_to_notify: Vec<Arc<WatchScopeNotifier>> = Vec::new();
        let mut weight = 0;
        let mut outcome = Ok(());
        let mut state = self.state.write();
        let before = state.newest.revision;
        let mut reached_revision = batch.revision.max(before);
        for (event, now) in decoded {
            // A watch does not repeat events; if one does, the first counts.
            if event.revision <= before {
                continue;
            }
            reached_revision = reached_revision.max(event.revision);
            let previous = state.newest.map.get(&*event.key).cloned();
            outcome = state
                .size
                .charge(&event.key, previous.as_ref(), now.as_ref());
            if outcome.is_err() {
                reached_revision = before;
                break;
            }
            match &now {
                Some(slot) => state
                    .newest
                    .map
                    .insert_mut(Arc::clone(&event.key), slot.clone()),
                None if previous.is_none() => continue,
                None => {
                    state.newest.map.remove_mut(&*event.key);
                }
            }
            let event = Arc::new(WatchCacheEvent::new(
                event.revision,
                event.key,
                now,
                previous,
                Arc::clone(&self.counters.encodings),
            ));
            weight += event.weight_bytes();
            self.counters.events.fetch_add(1, Ordering::Relaxed);
            state.record_in_scopes(&self.prefix, &event, &mut scopes_to_notify);
            state.ring.push(event);
        }
        state.newest.revision = reached_revision;
        // Under the lock, or an eviction could release bytes that are not yet charged.
        self.budget.charge(&self.ring_bytes, weight);
        drop(state);
        self.budget.trim();
        for scope in scopes_to_notify {
            scope.notify.notify_waiters();
        }
        if reached_revision > before {
            self.progress.send_modify(|p| p.revision = reached_revision);
        }
        outcome
    }

    /// The newest snapshot; fails while the cache is not ready.
    pub(crate) fn snapshot(&self) -> Result<CacheSnapshot, Error> {
        let state = self.state.read();
        match state.phase {
            CachePhase::Ready => Ok(state.newest.clone()),
            CachePhase::Filling | CachePhase::Broken | CachePhase::Unconvertible => {
                Err(Error::NotReady)
            }
        }
    }

    /// The snapshot at a revision that the cache has reached; `None` when it is older
    /// than the ring.
    pub(crate) fn snapshot_at(&self, revision: u64) -> Option<CacheSnapshot> {
        let (mut snapshot, events) = {
            let state = self.state.read();
            if state.phase != CachePhase::Ready
                || revision < state.ring.floor()
                || revision > state.newest.revision
            {
                return None;
            }
            let next = state
                .past_snapshots
                .partition_point(|s| s.revision < revision);
            let base = state
                .past_snapshots
                .get(next)
                .unwrap_or(&state.newest)
                .clone();
            let events: Vec<Arc<WatchCacheEvent>> = state
                .ring
                .events_between(revision, base.revision)
                .cloned()
                .collect();
            (base, events)
        };
        revert(&mut snapshot.map, &events);
        snapshot.revision = revision;
        if !events.is_empty() {
            self.keep_snapshot(&snapshot);
        }
        Some(snapshot)
    }

    /// Keeps a snapshot for the next page of a client.
    pub(crate) fn keep_snapshot(&self, snapshot: &CacheSnapshot) {
        let mut state = self.state.write();
        if state.phase != CachePhase::Ready || snapshot.revision < state.ring.floor() {
            return;
        }
        let index = state
            .past_snapshots
            .partition_point(|s| s.revision < snapshot.revision);
        if state.past_snapshots.get(index).map(|s| s.revision) == Some(snapshot.revision) {
            return;
        }
        state.past_snapshots.insert(index, snapshot.clone());
        if state.past_snapshots.len() > MAX_KEPT_SNAPSHOTS {
            state.past_snapshots.pop_front();
        }
    }

    /// Whether the cache has reached a revision.
    pub(crate) fn has_reached(&self, revision: u64) -> bool {
        self.progress.borrow().has_reached(revision)
    }

    /// Waits until the cache has reached a revision.
    pub(crate) async fn wait_for(&self, revision: u64) -> Result<(), Error> {
        if self.has_reached(revision) {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|p| {
            matches!(p.phase, CachePhase::Broken | CachePhase::Unconvertible)
                || p.has_reached(revision)
        });
        let outcome = tokio::time::timeout(self.config.read_timeout, reached)
            .await
            .map(|reached| reached.map(|p| p.phase));
        match outcome {
            Ok(Ok(CachePhase::Ready)) => Ok(()),
            Ok(_) => Err(Error::NotReady),
            Err(_) => {
                let now = *self.progress.borrow();
                Err(match now.phase {
                    CachePhase::Ready => Error::TooLargeResourceVersion {
                        requested: revision,
                        current: now.revision,
                    },
                    CachePhase::Filling | CachePhase::Broken | CachePhase::Unconvertible => {
                        Error::NotReady
                    }
                })
            }
        }
    }
}

impl EvictableRing for WatchCache {
    fn ring_bytes(&self) -> usize {
        self.ring_bytes.load(Ordering::Relaxed)
    }

    /// Drops the oldest revision of the ring and the snapshots that are older than the
    /// ring then. Returns whether anything was dropped.
    fn evict(&self) -> bool {
        let mut state = self.state.write();
        let freed = state.ring.evict();
        let floor = state.ring.floor();
        let old = state.past_snapshots.partition_point(|s| s.revision < floor);
        let dropped: Vec<CacheSnapshot> = state.past_snapshots.drain(..old).collect();
        self.budget.release(&self.ring_bytes, Some(freed));
        drop(state);
        drop(dropped);
        freed > 0
    }
}

impl WatchCacheState {
    /// Records an event in the scopes that include its key. The event then gets the
    /// position at the ring's head.
    fn record_in_scopes(
        &self,
        prefix: &str,
        event: &WatchCacheEvent,
        scopes_to_notify: &mut Vec<Arc<WatchScopeNotifier>>,
    ) {
        if self.scopes.is_empty() {
            return;
        }
        let next_position = self.ring.head() + 1;
        let suffix = event.key.strip_prefix(prefix).unwrap_or(&event.key);
        let mut hit = |scope: Option<&Arc<WatchScopeNotifier>>| {
            if let Some(scope) = scope {
                scope.last_position.store(next_position, Ordering::Relaxed);
                if !scopes_to_notify.iter().any(|w| Arc::ptr_eq(w, scope)) {
                    scopes_to_notify.push(Arc::clone(scope));
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
    pub(crate) fn join_scope(&mut self, id: &str) -> Arc<WatchScopeNotifier> {
        let head = self.ring.head();
        let scope = self.scopes.entry(id.into()).or_insert_with(|| {
            // Earlier events were not recorded, so assume that one was in this scope.
            Arc::new(WatchScopeNotifier {
                notify: Notify::new(),
                last_position: AtomicU64::new(head),
                watchers: AtomicUsize::new(0),
            })
        });
        scope.watchers.fetch_add(1, Ordering::Relaxed);
        Arc::clone(scope)
    }

    /// The counterpart of [`Self::join_scope`].
    pub(crate) fn leave_scope(&mut self, id: &str, scope: &WatchScopeNotifier) {
        if scope.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.scopes.remove(id);
        }
    }
}
