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
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::figures::{Name, OfQueue};

/// Karmada's `--rate-limiter-base-delay` and `--rate-limiter-max-delay`.
const BASE: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(1000);
/// Keys for which an idle queue keeps memory.
const ROOM: usize = 512;
/// After this many keys of the high lane in a row the queue hands out one of the low
/// lane, if it has the same priority, so that a steady stream of changes does not starve
/// a resync.
const BURST: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    High,
    Low,
}

/// The lane and priority in which a key waits, and since when.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wait {
    lane: Lane,
    rank: i32,
    since: Instant,
    /// Distinguishes the valid entry of the key in a lane from stale ones.
    turn: u64,
}

impl Wait {
    /// The higher lane and priority of both; `None` when that is the `known` position.
    fn surpassing(self, known: Self) -> Option<Self> {
        let lane = if self.lane == Lane::High {
            Lane::High
        } else {
            known.lane
        };
        let rank = self.rank.max(known.rank);
        (lane != known.lane || rank != known.rank).then_some(Self { lane, rank, ..self })
    }
}

/// A key in a lane, ordered by higher priority, then by age.
struct Entry<K> {
    rank: i32,
    turn: u64,
    key: K,
}

impl<K> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        self.turn == other.turn
    }
}
impl<K> Eq for Entry<K> {}
impl<K> PartialOrd for Entry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Entry<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_rank = self.rank.cmp(&other.rank);
        by_rank.then(other.turn.cmp(&self.turn))
    }
}

/// Whether a key waits or is processed. A key that does neither has no entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Ready(Wait),
    /// A worker processes the key; `dirty` is set when it was added again.
    Held {
        wait: Wait,
        dirty: Option<Wait>,
    },
}

/// Consecutive failures of one key.
#[derive(Clone, Copy, Default)]
struct Failing {
    count: u32,
    /// Time of the oldest user change that is not reconciled yet.
    since: Option<Instant>,
}

struct Delayed<K> {
    due: Instant,
    key: K,
}

impl<K> PartialEq for Delayed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl<K> Eq for Delayed<K> {}
impl<K> PartialOrd for Delayed<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Delayed<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

struct State<K> {
    places: AHashMap<K, Place>,
    /// Each heap may hold entries that later ones replaced; those are skipped.
    low: BinaryHeap<Entry<K>>,
    high: BinaryHeap<Entry<K>>,
    turns: u64,
    ready: usize,
    /// Keys handed out from the high lane since the last one from the low lane.
    streak: u32,
    heap: BinaryHeap<Reverse<Delayed<K>>>,
    /// The valid due time of each delayed key, and its priority; other heap entries are
    /// skipped.
    due: AHashMap<K, (Instant, i32)>,
    failures: AHashMap<K, Failing>,
    closed: bool,
    figures: Option<OfQueue>,
}

struct Inner<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    base: Duration,
    max: Duration,
}

/// A workqueue. Clones share one queue.
pub struct Queue<K>(Arc<Inner<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// Backoff from 5 ms to 1000 s.
    pub fn new() -> Self {
        Self::with_backoff(BASE, MAX)
    }

    pub fn with_backoff(base: Duration, max: Duration) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                places: AHashMap::new(),
                low: BinaryHeap::new(),
                high: BinaryHeap::new(),
                turns: 0,
                ready: 0,
                streak: 0,
                heap: BinaryHeap::new(),
                due: AHashMap::new(),
                failures: AHashMap::new(),
                closed: false,
                figures: None,
            }),
            wake: Notify::new(),
            base,
            max,
        }))
    }

    /// Enqueues a key for a user's change.
    pub fn add(&self, key: K) {
        self.enter(key, Lane::High);
    }

    /// Enqueues a key for a resync or an initial list; a later [`Workqueue::add`] moves it
    /// to the high lane.
    pub fn add_low(&self, key: K) {
        self.enter(key, Lane::Low);
    }

    /// [`Workqueue::add_low`] if `low`, else [`Workqueue::add`].
    pub fn add_lane(&self, key: K, low: bool) {
        self.enter(key, if low { Lane::Low } else { Lane::High });
    }

    /// Enqueues a key as if it had never failed: its backoff and its delay end. Higher
    /// priorities are handed out first, whatever their lane.
    pub fn add_anew(&self, key: K, low: bool, rank: i32) {
        let mut state = self.0.state.lock();
        state.due.remove(&key);
        if let Some(failing) = state.failures.get_mut(&key) {
            failing.count = 0;
        }
        let lane = if low { Lane::Low } else { Lane::High };
        if state.enter(key, lane, rank, Instant::now()) {
            drop(state);
            self.0.wake.notify_one();
        }
    }

    fn enter(&self, key: K, lane: Lane) {
        if self.0.state.lock().enter(key, lane, 0, Instant::now()) {
            self.0.wake.notify_one();
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
        if state.due.get(&key).is_some_and(|(known, _)| *known <= due) {
            return;
        }
        let rank = state.rank(&key);
        state.due.insert(key.clone(), (due, rank));
        let sooner = state.heap.peek().is_none_or(|Reverse(d)| due < d.due);
        state.heap.push(Reverse(Delayed { due, key }));
        drop(state);
        // Wake a waiter so that it sees the new time, unless an earlier one wakes it anyway.
        if sooner {
            self.0.wake.notify_one();
        }
    }

    /// Enqueues a key after a delay that doubles with each call until
    /// [`Workqueue::forget`]. Returns the delay.
    pub fn add_backoff(&self, key: K) -> Duration {
        let delay = {
            let mut state = self.0.state.lock();
            let since = state.answering(&key);
            let failing = state.failures.entry(key.clone()).or_default();
            let factor = 2_u32.saturating_pow(failing.count);
            failing.count = failing.count.saturating_add(1);
            failing.since = since;
            if let Some(figures) = &state.figures {
                figures.retries.inc();
            }
            self.0.base.saturating_mul(factor).min(self.0.max)
        };
        self.add_after(key, delay);
        delay
    }

    /// Resets a key's backoff.
    pub fn forget(&self, key: &K) {
        self.0.state.lock().failures.remove(key);
    }

    /// Failures since the last [`Workqueue::forget`].
    pub fn attempts(&self, key: &K) -> u32 {
        let state = self.0.state.lock();
        state.failures.get(key).map_or(0, |failing| failing.count)
    }

    /// Reports this queue's metrics under a controller name from now on.
    pub(crate) fn measure(&self, name: Name) {
        let mut state = self.0.state.lock();
        state.tell_no_more();
        let figures = OfQueue::new(name);
        figures.depth.add(state.ready as i64);
        state.figures = Some(figures);
    }

    /// Records that a user change is still not reconciled, without a backoff.
    pub(crate) fn postpone(&self, key: &K, since: Option<Instant>) {
        if since.is_some() {
            let failing = Failing { count: 0, since };
            self.0.state.lock().failures.insert(key.clone(), failing);
        }
    }

    /// Time since the user change that the processing of `key` has just handled; `None` when
    /// the key came from a resync.
    pub(crate) fn lag(&self, key: &K, now: Instant) -> Option<Duration> {
        let since = self.0.state.lock().answering(key)?;
        Some(now.duration_since(since))
    }

    /// Waits for the next key; the caller must call [`Workqueue::done`] for it. Returns
    /// `None` once the queue is closed. Dropping this future loses no key.
    pub async fn get(&self) -> Option<K> {
        loop {
            // Register before looking, so that no notification is missed.
            let woken = self.0.wake.notified();
            let next_due = {
                let mut state = self.0.state.lock();
                if state.closed {
                    return None;
                }
                state.promote_due(Instant::now());
                if let Some(key) = state.take() {
                    let more = state.ready > 0 || !state.heap.is_empty();
                    drop(state);
                    if more {
                        self.0.wake.notify_one();
                    }
                    return Some(key);
                }
                state.heap.peek().map(|Reverse(d)| d.due)
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
        if let Some(Place::Held {
            dirty: Some(wait), ..
        }) = state.places.remove(key)
            && state.enter(key.clone(), wait.lane, wait.rank, wait.since)
        {
            drop(state);
            self.0.wake.notify_one();
            return;
        }
        state.relax();
    }

    /// Closes the queue: it hands out no more keys and accepts none.
    pub fn close(&self) {
        self.0.state.lock().close();
        self.0.wake.notify_waiters();
    }

    /// Number of keys ready to be taken.
    pub fn len(&self) -> usize {
        self.0.state.lock().ready
    }

    /// Numbers of ready keys, of keys in backoff after a failure, and of keys with another
    /// delay.
    pub fn waiting(&self) -> [usize; 3] {
        let state = self.0.state.lock();
        let failed = |key: &&K| state.failures.get(key).is_some_and(|f| f.count > 0);
        let failing = state.due.keys().filter(failed).count();
        [state.ready, failing, state.due.len() - failing]
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no key is ready or being processed. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().places.is_empty()
    }

    /// Whether a key other than `but` is ready or being processed. Delayed keys do not count.
    pub fn has_others<Q: ?Sized + PartialEq>(&self, but: Option<&Q>) -> bool
    where
        K: Borrow<Q>,
    {
        let state = self.0.state.lock();
        let mut keys = state.places.keys();
        keys.any(|key| Some(key.borrow()) != but)
    }
}

impl<K> State<K> {
    fn tell_no_more(&mut self) {
        if let Some(figures) = self.figures.take() {
            figures.depth.sub(self.ready as i64);
        }
    }
}

/// Workers that are aborted do not close the queue.
impl<K> Drop for State<K> {
    fn drop(&mut self) {
        self.tell_no_more();
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Adds a key. Returns whether a waiting worker has something new to take.
    fn enter(&mut self, key: K, lane: Lane, rank: i32, since: Instant) -> bool {
        if self.closed {
            return false;
        }
        self.turns += 1;
        let wait = Wait {
            lane,
            rank,
            since,
            turn: self.turns,
        };
        match self.places.get_mut(&key) {
            Some(Place::Held { dirty, .. }) => {
                match dirty {
                    None => *dirty = Some(wait),
                    Some(known) => *known = wait.surpassing(*known).unwrap_or(*known),
                }
                return false;
            }
            Some(Place::Ready(known)) => {
                let Some(wait) = wait.surpassing(*known) else {
                    return false;
                };
                *known = wait;
                self.line_up(key, wait);
                return true;
            }
            None => {}
        }
        self.places.insert(key.clone(), Place::Ready(wait));
        self.ready += 1;
        if let Some(figures) = &self.figures {
            figures.adds.inc();
            figures.depth.inc();
        }
        self.line_up(key, wait);
        true
    }

    /// Frees the memory that a burst of keys needed, once the queue is empty.
    fn relax(&mut self) {
        if !self.places.is_empty() || self.places.capacity() <= 2 * ROOM {
            return;
        }
        self.places.shrink_to(ROOM);
        // None of the lane entries is valid any more.
        for lane in [&mut self.low, &mut self.high] {
            lane.clear();
            lane.shrink_to(ROOM);
        }
        self.heap.shrink_to(ROOM);
        self.due.shrink_to(ROOM);
        self.failures.shrink_to(ROOM);
    }

    fn line_up(&mut self, key: K, wait: Wait) {
        let Wait { rank, turn, .. } = wait;
        self.lane(wait.lane).push(Entry { rank, turn, key });
    }

    fn lane(&mut self, lane: Lane) -> &mut BinaryHeap<Entry<K>> {
        match lane {
            Lane::High => &mut self.high,
            Lane::Low => &mut self.low,
        }
    }

    /// The priority of a key that is ready or being processed.
    fn rank(&self, key: &K) -> i32 {
        match self.places.get(key) {
            Some(Place::Ready(wait) | Place::Held { wait, .. }) => wait.rank,
            None => 0,
        }
    }

    fn promote_due(&mut self, now: Instant) {
        while self.heap.peek().is_some_and(|Reverse(d)| d.due <= now) {
            let Some(Reverse(Delayed { due, key })) = self.heap.pop() else {
                return;
            };
            if let Some((valid, rank)) = self.due.get(&key).copied()
                && valid == due
            {
                self.due.remove(&key);
                self.enter(key, Lane::High, rank, due);
            }
        }
    }

    fn take(&mut self) -> Option<K> {
        let lane = match (self.top(Lane::High), self.top(Lane::Low)) {
            (None, None) => return None,
            (Some(high), Some(low)) if low > high => Lane::Low,
            (Some(high), Some(low)) if low == high && self.streak >= BURST => Lane::Low,
            (Some(_), _) => Lane::High,
            (None, Some(_)) => Lane::Low,
        };
        self.streak = match lane {
            Lane::High => self.streak + 1,
            Lane::Low => 0,
        };
        let key = self.lane(lane).pop()?.key;
        self.ready -= 1;
        let key_state = self.places.get_mut(&key)?;
        if let Place::Ready(wait) = *key_state {
            *key_state = Place::Held { wait, dirty: None };
            if let Some(figures) = &self.figures {
                figures.depth.dec();
                figures.waited.observe(wait.since.elapsed().as_secs_f64());
            }
        }
        Some(key)
    }

    /// Time of the user change that the processing of a key handles.
    fn answering(&self, key: &K) -> Option<Instant> {
        let before = self.failures.get(key).and_then(|failing| failing.since);
        before.or(match self.places.get(key) {
            Some(Place::Held { wait, .. }) if wait.lane == Lane::High => Some(wait.since),
            _ => None,
        })
    }

    fn close(&mut self) {
        self.closed = true;
        self.tell_no_more();
    }

    /// The priority of the next key of a lane. Drops stale entries.
    fn top(&mut self, lane: Lane) -> Option<i32> {
        loop {
            let entries = match lane {
                Lane::High => &mut self.high,
                Lane::Low => &mut self.low,
            };
            let Entry { rank, turn, key } = entries.peek()?;
            match self.places.get(key) {
                Some(Place::Ready(wait)) if wait.turn == *turn => return Some(*rank),
                _ => drop(entries.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
