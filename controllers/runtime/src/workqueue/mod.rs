//! A workqueue: each key at most once, higher priorities first, changes before new objects and
//! these before resyncs, with delays and backoff per key.
//!
//! Like client-go's `util/workqueue`, with priorities and three lanes: event handlers
//! and workers add keys, and at most one worker processes a key at a time. Delays need
//! no separate task: every caller of [`Workqueue::get`] also waits for the next due key.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::InformerEvent;
use machinery::backoff::exponential_delay;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{ControllerName, MeasuredQueue, WorkqueueMetrics, register_queue_age};
use key_states::{DelayedKey, KeyFailures, KeyState, WorkqueueState};
pub use lane::PriorityQueueLane;

/// Karmada's `--rate-limiter-base-delay` and `--rate-limiter-max-delay`.
const BASE_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_secs(1000);

struct WorkqueueInner<K> {
    state: Mutex<WorkqueueState<K>>,
    notify: Notify,
    base_delay: Duration,
    max_delay: Duration,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> MeasuredQueue for Weak<WorkqueueInner<K>> {
    fn is_measured(&self) -> bool {
        let queue = self.upgrade();
        queue.is_some_and(|queue| queue.state.lock().metrics.is_some())
    }

    fn oldest_wait(&self) -> Option<Instant> {
        self.upgrade()?.state.lock().oldest_wait()
    }
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
            state: Mutex::new(WorkqueueState::new()),
            notify: Notify::new(),
            base_delay: base,
            max_delay: max,
        }))
    }

    /// Enqueues a key for a change.
    pub fn add(&self, key: K) {
        self.add_to_lane(key, PriorityQueueLane::High);
    }

    /// Enqueues a key for a resync; a later [`Workqueue::add`] moves it to the high lane.
    pub fn add_low(&self, key: K) {
        self.add_to_lane(key, PriorityQueueLane::Low);
    }

    /// Enqueues a key for an event of an informer.
    pub fn add_event(&self, key: K, change: &InformerEvent<'_>) {
        self.add_to_lane(key, PriorityQueueLane::of(change));
    }

    /// Enqueues a key in a lane, or moves it there from a lower one.
    pub fn add_to_lane(&self, key: K, lane: PriorityQueueLane) {
        if self.0.state.lock().add(key, lane, 0, Instant::now()) {
            self.0.notify.notify_one();
        }
    }

    /// Enqueues a key as if it had never failed: its backoff and its delay end. Higher
    /// priorities are handed out first, whatever their lane.
    pub fn add_without_backoff(&self, key: K, lane: PriorityQueueLane, rank: i32) {
        let mut state = self.0.state.lock();
        state.due_times.remove(&key);
        if let Some(failing) = state.failures.get_mut(&key) {
            failing.count = 0;
        }
        if state.add(key, lane, rank, Instant::now()) {
            drop(state);
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
            .is_some_and(|(earlier, _)| *earlier <= due)
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
        self.add_rate_limited_within(key, self.0.max_delay)
    }

    /// [`Workqueue::add_rate_limited`] with a smaller maximum.
    pub fn add_rate_limited_within(&self, key: K, max: Duration) -> Duration {
        let delay = {
            let mut state = self.0.state.lock();
            let since = state.pending_since(&key);
            let failing = state.failures.entry(key.clone()).or_default();
            let delay = exponential_delay(self.0.base_delay, self.0.max_delay, failing.count);
            // A delay that was cut short does not make the next one longer.
            if delay <= max {
                failing.count = failing.count.saturating_add(1);
            }
            failing.pending_since = since;
            if let Some(figures) = &state.metrics {
                figures.retries.inc();
            }
            delay.min(max)
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
        drop(state);
        register_queue_age(name, Arc::downgrade(&self.0));
    }

    /// Records that a user change is still not reconciled, without a backoff.
    pub(crate) fn set_pending_since(&self, key: &K, since: Option<Instant>) {
        if since.is_some() {
            let failing = KeyFailures {
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

mod key_states;
mod lane;
#[cfg(test)]
mod tests;
