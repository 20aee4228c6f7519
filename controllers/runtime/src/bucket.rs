//! Token buckets with a bound on how many are remembered. Time is an argument.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::Instant;

struct Level {
    tokens: f64,
    at: Instant,
    /// Where it is in the order of use.
    turn: u64,
}

/// One bucket per key. Of too many the one that was used least lately is forgotten, as
/// in client-go's spam filter: it is full then.
pub(crate) struct Buckets<K> {
    burst: f64,
    /// Time for one token to come back.
    refill: Duration,
    levels: AHashMap<K, Level>,
    /// Keys in the order of use.
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

    /// Takes a token of a key's bucket, if there is one.
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
            // The third of two takes the place of the one used least lately.
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
