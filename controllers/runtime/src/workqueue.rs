//! A workqueue: each key at most once, higher priorities first, user changes before
//! resyncs, with delays and backoff per key.
//!
//! Like client-go's `util/workqueue`, with priorities and a second lane: event handlers
//! and workers add keys, and at most one worker processes a key at a time. Delays need
//! no separate task: every caller of [`Workqueue::get`] also waits for the next due key.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use machinery::backoff::exponential_delay;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{ControllerName, WorkqueueMetrics};

/// Karmada's `--rate-limiter-base-delay` and `--rate-limiter-max-delay`.
const BASE_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_secs(1000);
/// Keys for which an idle queue keeps memory.
const IDLE_CAPACITY_KEYS: usize = 512;
/// After this many keys of the high lane in a row the queue hands out one of the low
/// lane, if it has the same priority, so that a steady stream of changes does not starve
/// a resync.
const MAX_HIGH_STREAK: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum PriorityQueueLane {
    High,
    Low,
}

/// The lane and priority in which a key waits, and since when.
#[derive(Clone, Copy, PartialEq, Eq)]
struct QueuePosition {
    lane: PriorityQueueLane,
    priority: i32,
    since: Instant,
    /// Distinguishes the valid entry of the key in a lane from stale ones.
    sequence: u64,
}

impl QueuePosition {
    /// The higher lane and priority of both; `None` when that is the `known` position.
    fn merge_higher(self, known: Self) -> Option<Self> {
        let lane = if self.lane == PriorityQueueLane::High {
            PriorityQueueLane::High
        } else {
            known.lane
        };
        let rank = self.priority.max(known.priority);
        (lane != known.lane || rank != known.priority).then_some(Self {
            lane,
            priority: rank,
            ..self
        })
    }
}

/// A key in a lane, ordered by higher priority, then by age.
struct LaneEntry<K> {
    priority: i32,
    sequence: u64,
    key: K,
}

impl<K> PartialEq for LaneEntry<K> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl<K> Eq for LaneEntry<K> {}
impl<K> PartialOrd for LaneEntry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for LaneEntry<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_rank = self.priority.cmp(&other.priority);
        by_rank.then(other.sequence.cmp(&self.sequence))
    }
}

/// Whether a key waits or is processed. A key that does neither has no entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyState {
    Ready(QueuePosition),
    /// A worker processes the key; `dirty` is set when it was added again.
    Processing {
        wait: QueuePosition,
        dirty: Option<QueuePosition>,
    },
}

/// Consecutive failures of one key.
#[derive(Clone, Copy, Default)]
struct FailureCountAndPendingSince {
    count: u32,
    /// Time of the oldest user change that is not reconciled yet.
    pending_since: Option<Instant>,
}

struct DelayedKey<K> {
    due: Instant,
    key: K,
}

impl<K> PartialEq for DelayedKey<K> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl<K> Eq for DelayedKey<K> {}
impl<K> PartialOrd for DelayedKey<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for DelayedKey<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

struct WorkqueueState<K> {
    keys: AHashMap<K, KeyState>,
    /// Each heap may hold entries that later ones replaced; those are skipped.
    low: BinaryHeap<LaneEntry<K>>,
    high: BinaryHeap<LaneEntry<K>>,
    last_sequence: u64,
    ready: usize,
    /// Keys handed out from the high lane since the last one from the low lane.
    high_streak: u32,
    delayed: BinaryHeap<Reverse<DelayedKey<K>>>,
    /// The valid due time of each delayed key, and its priority; other heap entries are
    /// skipped.
    due_times: AHashMap<K, (Instant, i32)>,
    failures: AHashMap<K, FailureCountAndPendingSince>,
    closed: bool,
    metrics: Option<WorkqueueMetrics>,
}

struct WorkqueueInner<K> {
    state: Mutex<WorkqueueState<K>>,
    notify: Notify,
    base_delay: Duration,
    max_delay: Duration,
}

/// A workqueue. Clones share one queue.
pub struct Workqueue<K>(Arc<WorkqueueInner<K>>);

impl<K> Clone for Workqueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Default for Workqueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Workqueue<K> {
    /// Backoff from 5 ms to 1000 s.
    pub fn new() -> Self {
        Self::with_backoff(BASE_DELAY, MAX_DELAY)
    }

    pub fn with_backoff(base: Duration, max: Duration) -> Self {
        Self(Arc::new(WorkqueueInner {
            state: Mutex::new(WorkqueueState {
                keys: AHashMap::new(),
                low: BinaryHeap::new(),
                high: BinaryHeap::new(),
                last_sequence: 0,
                ready: 0,
                high_streak: 0,
                delayed: BinaryHeap::new(),
                due_times: AHashMap::new(),
                failures: AHashMap::new(),
                closed: false,
                metrics: None,
            }),
            notify: Notify::new(),
            base_delay: base,
            max_delay: max,
        }))
    }

    /// Enqueues a key for a user's change.
    pub fn add(&self, key: K) {
        self.insert(key, PriorityQueueLane::High);
    }

    /// Enqueues a key for a resync or an initial list; a later [`Workqueue::add`] moves it
    /// to the high lane.
    pub fn add_low(&self, key: K) {
        self.insert(key, PriorityQueueLane::Low);
    }

    /// [`Workqueue::add_low`] if `low`, else [`Workqueue::add`].
    pub fn add_to_lane(&self, key: K, low: bool) {
        self.insert(
            key,
            if low {
                PriorityQueueLane::Low
            } else {
                PriorityQueueLane::High
            },
        );
    }

    /// Enqueues a key as if it had never failed: its backoff and its delay end. Higher
    /// priorities are handed out first, whatever their lane.
    pub fn add_without_backoff(&self, key: K, low: bool, rank: i32) {
        let mut state = self.0.state.lock();
        state.due_times.remove(&key);
        if let Some(failing) = state.failures.get_mut(&key) {
            failing.count = 0;
        }
        let lane = if low {
            PriorityQueueLane::Low
        } else {
            PriorityQueueLane::High
        };
        if state.add(key, lane, rank, Instant::now()) {
            drop(state);
            self.0.notify.notify_one();
        }
    }

    fn insert(&self, key: K, lane: PriorityQueueLane) {
        if self.0.state.lock().add(key, lane, 0, Instant::now()) {
            self.0.notify.notify_one();
        }
    }

    /// Enqueues a key after a delay; of several delays the shortest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.0.state.lock();
        if state.closed {
            return;
        }
        let due = Instant::now() + delay;
        if state
            .due_times
            .get(&key)
            .is_some_and(|(known, _)| *known <= due)
        {
            return;
        }
        let rank = state.priority(&key);
        state.due_times.insert(key.clone(), (due, rank));
        let sooner = state.delayed.peek().is_none_or(|Reverse(d)| due < d.due);
        state.delayed.push(Reverse(DelayedKey { due, key }));
        drop(state);
        // Wake a waiter so that it sees the new time, unless an earlier one wakes it anyway.
        if sooner {
            self.0.notify.notify_one();
        }
    }

    /// Enqueues a key after a delay that doubles with each call until
    /// [`Workqueue::forget`]. Returns the delay.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let delay = {
            let mut state = self.0.state.lock();
            let since = state.pending_since(&key);
            let failing = state.failures.entry(key.clone()).or_default();
            let delay = exponential_delay(self.0.base_delay, self.0.max_delay, failing.count);
            failing.count = failing.count.saturating_add(1);
            failing.pending_since = since;
            if let Some(figures) = &state.metrics {
                figures.retries.inc();
            }
            delay
        };
        self.add_after(key, delay);
        delay
    }

    /// Resets a key's backoff.
    pub fn forget(&self, key: &K) {
        self.0.state.lock().failures.remove(key);
    }

    /// Failures since the last [`Workqueue::forget`].
    pub fn num_requeues(&self, key: &K) -> u32 {
        let state = self.0.state.lock();
        state.failures.get(key).map_or(0, |failing| failing.count)
    }

    /// Reports this queue's metrics under a controller name from now on.
    pub(crate) fn enable_metrics(&self, name: ControllerName) {
        let mut state = self.0.state.lock();
        state.unregister_metrics();
        let figures = WorkqueueMetrics::new(name);
        figures.depth.add(state.ready as i64);
        state.metrics = Some(figures);
    }

    /// Records that a user change is still not reconciled, without a backoff.
    pub(crate) fn set_pending_since(&self, key: &K, since: Option<Instant>) {
        if since.is_some() {
            let failing = FailureCountAndPendingSince {
                count: 0,
                pending_since: since,
            };
            self.0.state.lock().failures.insert(key.clone(), failing);
        }
    }

    /// Time since the user change that the processing of `key` has just handled; `None` when
    /// the key came from a resync.
    pub(crate) fn lag(&self, key: &K, now: Instant) -> Option<Duration> {
        let since = self.0.state.lock().pending_since(key)?;
        Some(now.duration_since(since))
    }

    /// Waits for the next key; the caller must call [`Workqueue::done`] for it. Returns
    /// `None` once the queue is closed. Dropping this future loses no key.
    pub async fn get(&self) -> Option<K> {
        loop {
            // Register before looking, so that no notification is missed.
            let woken = self.0.notify.notified();
            let next_due = {
                let mut state = self.0.state.lock();
                if state.closed {
                    return None;
                }
                state.promote_due(Instant::now());
                if let Some(key) = state.pop() {
                    let more = state.ready > 0 || !state.delayed.is_empty();
                    drop(state);
                    if more {
                        self.0.notify.notify_one();
                    }
                    return Some(key);
                }
                state.delayed.peek().map(|Reverse(d)| d.due)
            };
            match next_due {
                None => woken.await,
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, woken).await;
                }
            }
        }
    }

    /// Ends the processing of a key; if it was added meanwhile, it is ready again.
    pub fn done(&self, key: &K) {
        let mut state = self.0.state.lock();
        if let Some(KeyState::Processing {
            dirty: Some(wait), ..
        }) = state.keys.remove(key)
            && state.add(key.clone(), wait.lane, wait.priority, wait.since)
        {
            drop(state);
            self.0.notify.notify_one();
            return;
        }
        state.shrink();
    }

    /// Closes the queue: it hands out no more keys and accepts none.
    pub fn close(&self) {
        self.0.state.lock().close();
        self.0.notify.notify_waiters();
    }

    /// Number of keys ready to be taken.
    pub fn len(&self) -> usize {
        self.0.state.lock().ready
    }

    /// Numbers of ready keys, of keys in backoff after a failure, and of keys with another
    /// delay.
    pub fn pending_counts(&self) -> [usize; 3] {
        let state = self.0.state.lock();
        let failed = |key: &&K| state.failures.get(key).is_some_and(|f| f.count > 0);
        let failing = state.due_times.keys().filter(failed).count();
        [state.ready, failing, state.due_times.len() - failing]
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no key is ready or being processed. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().keys.is_empty()
    }

    /// Whether a key other than `but` is ready or being processed. Delayed keys do not count.
    pub fn has_other_keys<Q: ?Sized + PartialEq>(&self, but: Option<&Q>) -> bool
    where
        K: Borrow<Q>,
    {
        let state = self.0.state.lock();
        let mut keys = state.keys.keys();
        keys.any(|key| Some(key.borrow()) != but)
    }
}

impl<K> WorkqueueState<K> {
    fn unregister_metrics(&mut self) {
        if let Some(figures) = self.metrics.take() {
            figures.depth.sub(self.ready as i64);
        }
    }
}

/// Workers that are aborted do not close the queue.
impl<K> Drop for WorkqueueState<K> {
    fn drop(&mut self) {
        self.unregister_metrics();
    }
}

impl<K: Clone + Eq + Hash> WorkqueueState<K> {
    /// Adds a key. Returns whether a waiting worker has something new to take.
    fn add(&mut self, key: K, lane: PriorityQueueLane, rank: i32, since: Instant) -> bool {
        if self.closed {
            return false;
        }
        self.last_sequence += 1;
        let wait = QueuePosition {
            lane,
            priority: rank,
            since,
            sequence: self.last_sequence,
        };
        match self.keys.get_mut(&key) {
            Some(KeyState::Processing { dirty, .. }) => {
                match dirty {
                    None => *dirty = Some(wait),
                    Some(known) => *known = wait.merge_higher(*known).unwrap_or(*known),
                }
                return false;
            }
            Some(KeyState::Ready(known)) => {
                let Some(wait) = wait.merge_higher(*known) else {
                    return false;
                };
                *known = wait;
                self.push(key, wait);
                return true;
            }
            None => {}
        }
        self.keys.insert(key.clone(), KeyState::Ready(wait));
        self.ready += 1;
        if let Some(figures) = &self.metrics {
            figures.adds.inc();
            figures.depth.inc();
        }
        self.push(key, wait);
        true
    }

    /// Frees the memory that a burst of keys needed, once the queue is empty.
    fn shrink(&mut self) {
        if !self.keys.is_empty() || self.keys.capacity() <= 2 * IDLE_CAPACITY_KEYS {
            return;
        }
        self.keys.shrink_to(IDLE_CAPACITY_KEYS);
        // None of the lane entries is valid any more.
        for lane in [&mut self.low, &mut self.high] {
            lane.clear();
            lane.shrink_to(IDLE_CAPACITY_KEYS);
        }
        self.delayed.shrink_to(IDLE_CAPACITY_KEYS);
        self.due_times.shrink_to(IDLE_CAPACITY_KEYS);
        self.failures.shrink_to(IDLE_CAPACITY_KEYS);
    }

    fn push(&mut self, key: K, wait: QueuePosition) {
        let QueuePosition {
            priority: rank,
            sequence: turn,
            ..
        } = wait;
        self.lane_mut(wait.lane).push(LaneEntry {
            priority: rank,
            sequence: turn,
            key,
        });
    }

    fn lane_mut(&mut self, lane: PriorityQueueLane) -> &mut BinaryHeap<LaneEntry<K>> {
        match lane {
            PriorityQueueLane::High => &mut self.high,
            PriorityQueueLane::Low => &mut self.low,
        }
    }

    /// The priority of a key that is ready or being processed.
    fn priority(&self, key: &K) -> i32 {
        match self.keys.get(key) {
            Some(KeyState::Ready(wait) | KeyState::Processing { wait, .. }) => wait.priority,
            None => 0,
        }
    }

    fn promote_due(&mut self, now: Instant) {
        while self.delayed.peek().is_some_and(|Reverse(d)| d.due <= now) {
            let Some(Reverse(DelayedKey { due, key })) = self.delayed.pop() else {
                return;
            };
            if let Some((valid, rank)) = self.due_times.get(&key).copied()
                && valid == due
            {
                self.due_times.remove(&key);
                self.add(key, PriorityQueueLane::High, rank, due);
            }
        }
    }

    fn pop(&mut self) -> Option<K> {
        let lane = match (
            self.peek_priority(PriorityQueueLane::High),
            self.peek_priority(PriorityQueueLane::Low),
        ) {
            (None, None) => return None,
            (Some(high), Some(low)) if low > high => PriorityQueueLane::Low,
            (Some(high), Some(low)) if low == high && self.high_streak >= MAX_HIGH_STREAK => {
                PriorityQueueLane::Low
            }
            (Some(_), _) => PriorityQueueLane::High,
            (None, Some(_)) => PriorityQueueLane::Low,
        };
        self.high_streak = match lane {
            PriorityQueueLane::High => self.high_streak + 1,
            PriorityQueueLane::Low => 0,
        };
        let key = self.lane_mut(lane).pop()?.key;
        self.ready -= 1;
        let key_state = self.keys.get_mut(&key)?;
        if let KeyState::Ready(wait) = *key_state {
            *key_state = KeyState::Processing { wait, dirty: None };
            if let Some(figures) = &self.metrics {
                figures.depth.dec();
                figures
                    .queue_duration
                    .observe(wait.since.elapsed().as_secs_f64());
            }
        }
        Some(key)
    }

    /// Time of the user change that the processing of a key handles.
    fn pending_since(&self, key: &K) -> Option<Instant> {
        let before = self
            .failures
            .get(key)
            .and_then(|failing| failing.pending_since);
        before.or(match self.keys.get(key) {
            Some(KeyState::Processing { wait, .. }) if wait.lane == PriorityQueueLane::High => {
                Some(wait.since)
            }
            _ => None,
        })
    }

    fn close(&mut self) {
        self.closed = true;
        self.unregister_metrics();
    }

    /// The priority of the next key of a lane. Drops stale entries.
    fn peek_priority(&mut self, lane: PriorityQueueLane) -> Option<i32> {
        loop {
            let entries = match lane {
                PriorityQueueLane::High => &mut self.high,
                PriorityQueueLane::Low => &mut self.low,
            };
            let LaneEntry {
                priority: rank,
                sequence: turn,
                key,
            } = entries.peek()?;
            match self.keys.get(key) {
                Some(KeyState::Ready(wait)) if wait.sequence == *turn => return Some(*rank),
                _ => drop(entries.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
