//! The state of a workqueue: which keys wait in which lane, are processed, are delayed or
//! fail. Synchronous, under the queue's lock; time is an argument.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use ahash::AHashMap;
use tokio::time::Instant;

use crate::metrics::WorkqueueMetrics;

/// Keys for which an idle queue keeps memory.
pub(super) const IDLE_CAPACITY_KEYS: usize = 512;
/// After this many keys of the high lane in a row the queue hands out one of the low
/// lane, if it has the same priority, so that a steady stream of changes does not starve
/// a resync.
pub(super) const MAX_HIGH_STREAK: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorityQueueLane {
    High,
    Low,
}

/// The lane and priority in which a key waits, and since when.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuePosition {
    pub(super) lane: PriorityQueueLane,
    pub(super) priority: i32,
    pub(super) since: Instant,
    /// Distinguishes the valid entry of the key in a lane from stale ones.
    sequence: u64,
}

impl QueuePosition {
    /// The higher lane and priority of both; `None` when that is the `known` position.
    fn merge_higher(self, other: Self) -> Option<Self> {
        let lane = if self.lane == PriorityQueueLane::High {
            PriorityQueueLane::High
        } else {
            other.lane
        };
        let rank = self.priority.max(other.priority);
        (lane != other.lane || rank != other.priority).then_some(Self {
            lane,
            priority: rank,
            ..self
        })
    }
}

/// A key in a lane, ordered by higher priority, then by age.
pub(super) struct LaneEntry<K> {
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
pub(super) enum KeyState {
    Ready(QueuePosition),
    /// A worker processes the key; `dirty` is set when it was added again.
    Processing {
        wait: QueuePosition,
        dirty: Option<QueuePosition>,
    },
}

/// Consecutive failures of one key.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyFailures {
    pub(super) count: u32,
    /// Time of the oldest user change that is not reconciled yet.
    pub(super) pending_since: Option<Instant>,
}

pub(super) struct DelayedKey<K> {
    pub(super) due: Instant,
    pub(super) key: K,
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

pub(super) struct WorkqueueState<K> {
    pub(super) keys: AHashMap<K, KeyState>,
    /// Each heap may hold entries that later ones replaced; those are skipped.
    pub(super) low: BinaryHeap<LaneEntry<K>>,
    pub(super) high: BinaryHeap<LaneEntry<K>>,
    last_sequence: u64,
    pub(super) ready: usize,
    /// Keys handed out from the high lane since the last one from the low lane.
    high_streak: u32,
    pub(super) delayed: BinaryHeap<Reverse<DelayedKey<K>>>,
    /// The valid due time of each delayed key, and its priority; other heap entries are
    /// skipped.
    pub(super) due_times: AHashMap<K, (Instant, i32)>,
    pub(super) failures: AHashMap<K, KeyFailures>,
    pub(super) closed: bool,
    pub(super) metrics: Option<WorkqueueMetrics>,
}
impl<K> WorkqueueState<K> {
    pub(super) fn new() -> Self {
        Self {
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
        }
    }

    /// Since when the key that waits longest has waited; `None` if none is ready.
    pub(super) fn oldest_wait(&self) -> Option<Instant> {
        let waiting = self.keys.values().filter_map(|state| match state {
            KeyState::Ready(wait) => Some(wait.since),
            KeyState::Processing { .. } => None,
        });
        waiting.min()
    }

    pub(super) fn unregister_metrics(&mut self) {
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
    pub(super) fn add(
        &mut self,
        key: K,
        lane: PriorityQueueLane,
        rank: i32,
        since: Instant,
    ) -> bool {
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
                    Some(pending) => *pending = wait.merge_higher(*pending).unwrap_or(*pending),
                }
                return false;
            }
            Some(KeyState::Ready(queued)) => {
                let Some(wait) = wait.merge_higher(*queued) else {
                    return false;
                };
                *queued = wait;
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
    pub(super) fn shrink(&mut self) {
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
    pub(super) fn priority(&self, key: &K) -> i32 {
        match self.keys.get(key) {
            Some(KeyState::Ready(wait) | KeyState::Processing { wait, .. }) => wait.priority,
            None => 0,
        }
    }

    pub(super) fn promote_due(&mut self, now: Instant) {
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

    pub(super) fn pop(&mut self) -> Option<K> {
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
    pub(super) fn pending_since(&self, key: &K) -> Option<Instant> {
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

    pub(super) fn close(&mut self) {
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
