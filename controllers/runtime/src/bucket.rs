//! Token buckets for a bounded number of keys. Time is an argument.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::Instant;

struct Level {
    tokens: f64,
    at: Instant,
    /// Position in the order of use.
    turn: u64,
}

/// One token bucket per key. When there are more keys than `capacity`, the least recently
/// used bucket is dropped, as in client-go's spam filter: by then it is full again.
pub(crate) struct Buckets<K> {
    burst: f64,
    /// Time in which one token is refilled.
    refill: Duration,
    levels: AHashMap<K, Level>,
    /// Keys in the order of their last use.
    turns: BTreeMap<u64, K>,
    next: u64,
    most: usize,
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    pub(crate) fn new(burst: u32, refill: Duration, most: usize) -> Self {
        Self {
            burst: f64::from(burst),
            refill,
            levels: AHashMap::new(),
            turns: BTreeMap::new(),
            next: 0,
            most,
        }
    }

    /// Takes a token from a key's bucket. Returns false when the bucket is empty.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> bool {
        let turn = self.next;
        self.next += 1;
        let full = Level {
            tokens: self.burst,
            at: now,
            turn,
        };
        let level = self.levels.entry(key.clone()).or_insert(full);
        self.turns.remove(&level.turn);
        self.turns.insert(turn, key);
        level.turn = turn;
        let back = now.duration_since(level.at).as_secs_f64() / self.refill.as_secs_f64();
        level.tokens = (level.tokens + back).min(self.burst);
        level.at = now;
        let is_enough = level.tokens >= 1.0;
        if is_enough {
            level.tokens -= 1.0;
        }
        if self.levels.len() > self.most
            && let Some((_, oldest)) = self.turns.pop_first()
        {
            self.levels.remove(&oldest);
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bucket_empties_refills_and_is_forgotten() {
        let mut buckets = Buckets::new(2, Duration::from_secs(10), 2);
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let table = [
            ("a", 0, true),
            ("a", 0, true),
            ("a", 0, false),
            ("b", 0, true),
            ("a", 9, false),
            ("a", 10, true),
            // The third key evicts the least recently used of the two.
            ("c", 10, true),
            ("a", 10, false),
            ("b", 10, true),
            ("c", 10, true),
        ];
        for (key, seconds, expected) in table {
            assert_eq!(
                buckets.take(key, at(seconds)),
                expected,
                "{key} at {seconds}"
            );
        }
    }
}
