//! A queue of keys: each at most once, user changes before resyncs, delays and
//! backoff per key.
//!
//! Enters: keys from handlers and workers. Leaves: keys, one holder at a time
//! (client-go's `util/workqueue`, with a second lane). Delays need no task of
//! their own: whoever waits in [`Queue::get`] also waits for the next due key.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
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
/// After so many keys of the high lane in a row one of the low lane comes, so that
/// a steady stream of changes does not starve a resync.
const BURST: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    High,
    Low,
}

/// Since when a key waits, and in which lane.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wait {
    lane: Lane,
    since: Instant,
}

/// Where a key stands. What is nowhere has no entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Ready(Wait),
    /// A worker has it; `again`: it changed meanwhile.
    Held {
        wait: Wait,
        again: Option<Wait>,
    },
}

/// A row of failures of one key.
#[derive(Clone, Copy, Default)]
struct Failing {
    count: u32,
    /// Since when a change of a user is not answered.
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
    /// May hold keys that were promoted to `high`; they are skipped.
    low: VecDeque<K>,
    high: VecDeque<K>,
    ready: usize,
    /// High keys taken since the last low one.
    streak: u32,
    heap: BinaryHeap<Reverse<Delayed<K>>>,
    /// The valid due time of each delayed key; other heap entries are skipped.
    due: AHashMap<K, Instant>,
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

/// The queue. Clones are the same queue.
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
                low: VecDeque::new(),
                high: VecDeque::new(),
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

    /// Puts a key in for a user's change.
    pub fn add(&self, key: K) {
        self.enter(key, Lane::High);
    }

    /// Puts a key in for a resync or an initial list; a later [`Queue::add`] moves
    /// it to the front lane.
    pub fn add_low(&self, key: K) {
        self.enter(key, Lane::Low);
    }

    /// [`Queue::add_low`] when `low`, else [`Queue::add`].
    pub fn add_lane(&self, key: K, low: bool) {
        self.enter(key, if low { Lane::Low } else { Lane::High });
    }

    fn enter(&self, key: K, lane: Lane) {
        let wait = Wait {
            lane,
            since: Instant::now(),
        };
        if self.0.state.lock().enter(key, wait) {
            self.0.wake.notify_one();
        }
    }

    /// Puts a key in after a while; of several delays the earliest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.0.state.lock();
        if state.closed {
            return;
        }
        let due = Instant::now() + delay;
        if state.due.get(&key).is_some_and(|known| *known <= due) {
            return;
        }
        state.due.insert(key.clone(), due);
        let sooner = state.heap.peek().is_none_or(|Reverse(d)| due < d.due);
        state.heap.push(Reverse(Delayed { due, key }));
        drop(state);
        // Someone who waits must learn of it, unless an earlier time wakes them.
        if sooner {
            self.0.wake.notify_one();
        }
    }

    /// Puts a key in after a delay that doubles with each call until
    /// [`Queue::forget`]. Returns the delay.
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

    /// Ends a key's backoff.
    pub fn forget(&self, key: &K) {
        self.0.state.lock().failures.remove(key);
    }

    /// Failures since the last [`Queue::forget`].
    pub fn attempts(&self, key: &K) -> u32 {
        let state = self.0.state.lock();
        state.failures.get(key).map_or(0, |failing| failing.count)
    }

    /// Tells of this queue under a name from now on.
    pub(crate) fn measure(&self, name: Name) {
        let mut state = self.0.state.lock();
        state.tell_no_more();
        let figures = OfQueue::new(name);
        figures.depth.add(state.ready as i64);
        state.figures = Some(figures);
    }

    /// Notes that a change of a user is still not answered, without a backoff.
    pub(crate) fn postpone(&self, key: &K, since: Option<Instant>) {
        if since.is_some() {
            let failing = Failing { count: 0, since };
            self.0.state.lock().failures.insert(key.clone(), failing);
        }
    }

    /// How long the change of a user, which the holder of a key has just answered,
    /// had to wait; `None` when the key came from a resync.
    pub(crate) fn lag(&self, key: &K, now: Instant) -> Option<Duration> {
        let since = self.0.state.lock().answering(key)?;
        Some(now.duration_since(since))
    }

    /// The next key; its holder must call [`Queue::done`]. `None` once the queue is
    /// closed. Dropping this future loses no key.
    pub async fn get(&self) -> Option<K> {
        loop {
            // Registered before looking, so that no notification is missed.
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

    /// Ends the work on a key; if it changed meanwhile, it is ready again.
    pub fn done(&self, key: &K) {
        let mut state = self.0.state.lock();
        if let Some(Place::Held {
            again: Some(wait), ..
        }) = state.places.remove(key)
            && state.enter(key.clone(), wait)
        {
            drop(state);
            self.0.wake.notify_one();
        }
    }

    /// Hands out no more keys and takes none.
    pub fn close(&self) {
        self.0.state.lock().close();
        self.0.wake.notify_waiters();
    }

    /// Keys ready to be taken.
    pub fn len(&self) -> usize {
        self.0.state.lock().ready
    }

    /// Keys that are ready, keys in backoff after a failure, and keys that wait for
    /// a time that was set.
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

    /// Whether no key is ready or held. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        self.0.state.lock().places.is_empty()
    }
}

impl<K> State<K> {
    fn tell_no_more(&mut self) {
        if let Some(figures) = self.figures.take() {
            figures.depth.sub(self.ready as i64);
        }
    }
}

/// Workers that are cut off close nothing.
impl<K> Drop for State<K> {
    fn drop(&mut self) {
        self.tell_no_more();
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Whether a waiting worker has something new to take.
    fn enter(&mut self, key: K, wait: Wait) -> bool {
        if self.closed {
            return false;
        }
        match self.places.get_mut(&key) {
            Some(Place::Held { again, .. }) => {
                if again.is_none_or(|known| known.lane == Lane::Low) {
                    *again = Some(wait);
                }
                return false;
            }
            Some(Place::Ready(known)) => {
                if wait.lane == Lane::Low || known.lane == Lane::High {
                    return false;
                }
                *known = wait;
                self.high.push_back(key);
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
        match wait.lane {
            Lane::High => self.high.push_back(key),
            Lane::Low => self.low.push_back(key),
        }
        true
    }

    fn promote_due(&mut self, now: Instant) {
        while self.heap.peek().is_some_and(|Reverse(d)| d.due <= now) {
            let Some(Reverse(Delayed { due, key })) = self.heap.pop() else {
                return;
            };
            if self.due.get(&key) == Some(&due) {
                self.due.remove(&key);
                let lane = Lane::High;
                self.enter(key, Wait { lane, since: due });
            }
        }
    }

    fn take(&mut self) -> Option<K> {
        let low_first = self.streak >= BURST;
        let key = if low_first {
            self.take_from(Lane::Low)
                .or_else(|| self.take_from(Lane::High))
        } else {
            self.take_from(Lane::High)
                .or_else(|| self.take_from(Lane::Low))
        }?;
        self.ready -= 1;
        let place = self.places.get_mut(&key)?;
        if let Place::Ready(wait) = *place {
            *place = Place::Held { wait, again: None };
            if let Some(figures) = &self.figures {
                figures.depth.dec();
                figures.waited.observe(wait.since.elapsed().as_secs_f64());
            }
        }
        Some(key)
    }

    /// Since when the change of a user waits for what the holder of a key does.
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

    fn take_from(&mut self, lane: Lane) -> Option<K> {
        match lane {
            Lane::High => {
                let key = self.high.pop_front()?;
                self.streak += 1;
                Some(key)
            }
            Lane::Low => {
                self.streak = 0;
                while let Some(key) = self.low.pop_front() {
                    if let Some(Place::Ready(wait)) = self.places.get(&key)
                        && wait.lane == Lane::Low
                    {
                        return Some(key);
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    async fn drain(queue: &Queue<u32>) -> Vec<u32> {
        let mut keys = Vec::new();
        while !queue.is_empty() {
            let key = queue.get().await.unwrap();
            queue.done(&key);
            keys.push(key);
        }
        keys
    }

    #[tokio::test]
    async fn changes_overtake_resyncs_but_do_not_starve_them() {
        let queue = Queue::new();
        for key in 0..4 {
            queue.add_low(key);
        }
        queue.add(9);
        queue.add(2);
        queue.add(9);
        assert_eq!(drain(&queue).await, [9, 2, 0, 1, 3]);
        queue.add_low(1000);
        for key in 0..40 {
            queue.add(key);
        }
        let order = drain(&queue).await;
        assert_eq!(order.iter().position(|k| *k == 1000), Some(BURST as usize));
    }

    #[tokio::test]
    async fn a_held_key_comes_again_when_it_changed() {
        let queue = Queue::new();
        queue.add(1);
        assert_eq!(queue.get().await, Some(1));
        queue.add_low(1);
        queue.add(1);
        assert!(queue.is_empty() && !queue.is_idle());
        queue.done(&1);
        assert_eq!(queue.get().await, Some(1));
        queue.done(&1);
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn delays_count_from_the_earliest_and_backoff_doubles() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_after(1, Duration::from_secs(60));
        queue.add_after(1, Duration::from_secs(5));
        queue.add_after(1, Duration::from_secs(30));
        assert_eq!(queue.get().await, Some(1));
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&1);
        let idle = tokio::time::timeout(Duration::from_secs(100), queue.get()).await;
        assert!(idle.is_err(), "superseded delays fire no more");

        let delays: Vec<u64> = (0..4)
            .map(|_| queue.add_backoff(7).as_millis() as u64)
            .collect();
        assert_eq!((delays, queue.attempts(&7)), (vec![5, 10, 20, 40], 4));
        for _ in 0..40 {
            queue.add_backoff(7);
        }
        assert_eq!(queue.add_backoff(7), MAX);
        queue.forget(&7);
        assert_eq!(queue.add_backoff(7), BASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_learns_of_earlier_delays_and_of_the_end() {
        let queue = Queue::new();
        queue.add_after(1, Duration::from_secs(60));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await }
        });
        tokio::task::yield_now().await;
        queue.add_after(2, Duration::from_secs(1));
        assert_eq!(waiting.await.unwrap(), Some(2));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(waiting.await.unwrap(), None);
    }

    proptest! {
        #[test]
        fn every_added_key_is_handed_out_and_never_twice_at_once(steps in prop::collection::vec((0_u8..4, 0_u32..8), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let queue = Queue::new();
                let (mut owed, mut held) = (HashSet::new(), HashSet::new());
                for (step, key) in steps {
                    match step {
                        0 => { queue.add(key); owed.insert(key); }
                        1 => { queue.add_low(key); owed.insert(key); }
                        2 if !queue.is_empty() => {
                            let key = queue.get().await.unwrap();
                            assert!(owed.remove(&key) && held.insert(key));
                        }
                        _ => if held.remove(&key) { queue.done(&key); },
                    }
                }
                for key in held.drain() { queue.done(&key); }
                assert_eq!(drain(&queue).await.into_iter().collect::<HashSet<_>>(), owed);
                assert!(queue.is_idle());
            });
        }
    }
}
