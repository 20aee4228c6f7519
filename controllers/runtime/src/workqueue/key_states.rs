//! The state of a workqueue: which keys wait in which lane, are processed, are delayed or
//! fail. Synchronous, under the queue's lock; time is an argument.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use ahash::AHashMap;
use tokio::time::Instant;

use super::lane::PriorityQueueLane;
use crate::metrics::WorkqueueMetrics;

/// Keys for which an idle queue keeps memory.
pub(super) const IDLE_CAPACITY_KEYS: usize = 512;
/// After this many keys of a lane in a row the queue hands out one of the next lower lane, if it
/// has the same priority, so that a steady stream of changes does not starve new objects, nor both
/// a resync.
pub(super) const MAX_LANE_STREAK: u32 = 16;

pub(super) const LANES_FROM_HIGH: [PriorityQueueLane; 3] = [
    PriorityQueueLane::High,
    PriorityQueueLane::Medium,
    PriorityQueueLane::Low,
];

/// The keys that wait in a lane.
pub(super) struct LaneEntries<K> {
    /// May hold entries that later ones replaced; those are skipped.
    pub(super) heap: BinaryHeap<LaneEntry<K>>,
    /// Keys handed out since the last one of a lower lane.
    streak: u32,
}

impl<K> Default for LaneEntries<K> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            streak: 0,
        }
    }
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
        let lane = self.lane.max(other.lane);
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
    /// By [`PriorityQueueLane`].
    pub(super) lanes: [LaneEntries<K>; 3],
    last_sequence: u64,
    pub(super) ready: usize,
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
            lanes: Default::default(),
            last_sequence: 0,
            ready: 0,
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
        for lane in &mut self.lanes {
            lane.heap.clear();
            lane.heap.shrink_to(IDLE_CAPACITY_KEYS);
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
        self.lanes[wait.lane as usize].heap.push(LaneEntry {
            priority: rank,
            sequence: turn,
            key,
        });
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
        let lane = self.next_lane()?;
        let key = self.lanes[lane as usize].heap.pop()?.key;
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

    /// The lane from which the next key is handed out: of those with the highest priority the
    /// highest one that has not had its streak.
    fn next_lane(&mut self) -> Option<PriorityQueueLane> {
        let priorities = LANES_FROM_HIGH.map(|lane| self.peek_priority(lane));
        let highest = priorities.into_iter().max().flatten()?;
        let lanes = LANES_FROM_HIGH.into_iter().zip(priorities);
        let mut waiting =
            lanes.filter_map(|(lane, priority)| (priority == Some(highest)).then_some(lane));
        let mut next = waiting.next()?;
        for lower in waiting {
            if self.lanes[next as usize].streak < MAX_LANE_STREAK {
                break;
            }
            next = lower;
        }
        for higher in LANES_FROM_HIGH.into_iter().filter(|lane| *lane > next) {
            self.lanes[higher as usize].streak = 0;
        }
        self.lanes[next as usize].streak += 1;
        Some(next)
    }

    /// Time of the user change that the processing of a key handles.
    pub(super) fn pending_since(&self, key: &K) -> Option<Instant> {
        let before = self
            .failures
            .get(key)
            .and_then(|failing| failing.pending_since);
        before.or(match self.keys.get(key) {
            Some(KeyState::Processing { wait, .. }) if wait.lane != PriorityQueueLane::Low => {
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
            let entries = &mut self.lanes[lane as usize].heap;
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
