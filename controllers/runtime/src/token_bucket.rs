//! Token buckets for a bounded number of keys. Time is an argument.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::Instant;

struct TokenBucket {
    tokens: f64,
    updated_at: Instant,
    /// Position in the order of use.
    last_use: u64,
}

/// One token bucket per key. When there are more keys than `capacity`, the least recently
/// used bucket is dropped, as in client-go's spam filter: by then it is full again.
pub(crate) struct TokenBuckets<K> {
    burst: f64,
    /// Time in which one token is refilled.
    refill: Duration,
    buckets: AHashMap<K, TokenBucket>,
    /// Keys in the order of their last use.
    by_last_use: BTreeMap<u64, K>,
    next_use: u64,
    capacity: usize,
}

impl<K: Clone + Eq + Hash> TokenBuckets<K> {
    pub(crate) fn new(burst: u32, refill: Duration, capacity: usize) -> Self {
        Self {
            burst: f64::from(burst),
            refill,
            buckets: AHashMap::new(),
            by_last_use: BTreeMap::new(),
            next_use: 0,
            capacity,
        }
    }

    /// Takes a token from a key's bucket. Returns false when the bucket is empty.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> bool {
        let turn = self.next_use;
        self.next_use += 1;
        let full = TokenBucket {
            tokens: self.burst,
            updated_at: now,
            last_use: turn,
        };
        let level = self.buckets.entry(key.clone()).or_insert(full);
        self.by_last_use.remove(&level.last_use);
        self.by_last_use.insert(turn, key);
        level.last_use = turn;
        let back = now.duration_since(level.updated_at).as_secs_f64() / self.refill.as_secs_f64();
        level.tokens = (level.tokens + back).min(self.burst);
        level.updated_at = now;
        let is_enough = level.tokens >= 1.0;
        if is_enough {
            level.tokens -= 1.0;
        }
        if self.buckets.len() > self.capacity
            && let Some((_, oldest)) = self.by_last_use.pop_first()
        {
            self.buckets.remove(&oldest);
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bucket_empties_refills_and_is_forgotten() {
        let mut buckets = TokenBuckets::new(2, Duration::from_secs(10), 2);
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
