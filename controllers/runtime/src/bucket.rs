//! Token buckets with a bound on how many are remembered. Time is an argument.

use std::hash::Hash;
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::Instant;

struct Level {
    tokens: f64,
    at: Instant,
}

/// One bucket per key.
pub(crate) struct Buckets<K> {
    burst: f64,
    /// Time for one token to come back.
    refill: Duration,
    levels: AHashMap<K, Level>,
    most: usize,
}

impl<K: Eq + Hash> Buckets<K> {
    pub(crate) fn new(burst: u32, refill: Duration, most: usize) -> Self {
        Self {
            burst: f64::from(burst),
            refill,
            levels: AHashMap::new(),
            most,
        }
    }

    /// Takes a token of a key's bucket, if there is one.
    pub(crate) fn take(&mut self, key: K, now: Instant) -> bool {
        let (burst, refill) = (self.burst, self.refill);
        let full_at = |l: &Level| l.at + refill.mul_f64(burst - l.tokens);
        if self.levels.len() >= self.most && !self.levels.contains_key(&key) {
            // A bucket that is full again says nothing.
            self.levels.retain(|_, l| full_at(l) > now);
            if self.levels.len() >= self.most {
                return false;
            }
        }
        let level = self.levels.entry(key).or_insert(Level {
            tokens: burst,
            at: now,
        });
        let back = now.duration_since(level.at).as_secs_f64() / refill.as_secs_f64();
        level.tokens = (level.tokens + back).min(burst);
        level.at = now;
        if level.tokens < 1.0 {
            return false;
        }
        level.tokens -= 1.0;
        true
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
            ("c", 0, false),
            ("a", 9, false),
            ("a", 10, true),
            ("c", 15, true),
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
