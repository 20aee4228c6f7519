//! Caches review results by digest and merges concurrent identical reviews into one.
//!
//! Failures are shared with every waiting caller and not cached. The cache is bounded;
//! the least recently used entries are evicted first.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use machinery::Status;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Bound on cached reviews, as in Kubernetes' delegated authorizer.
const REMEMBERED: usize = 8192;

/// SHA-256 digest of a review.
pub(super) type Key = [u8; 32];

struct Outcome<V> {
    at: Instant,
    /// Valid until then.
    until: Instant,
    result: Result<V, Status>,
}

type Cell<V> = Arc<tokio::sync::Mutex<Option<Outcome<V>>>>;

struct Entry<V> {
    used: u64,
    cell: Cell<V>,
}

struct Entries<V> {
    by_key: HashMap<Key, Entry<V>>,
    /// Incremented on every use.
    clock: u64,
}

pub(super) struct Answers<V> {
    entries: Mutex<Entries<V>>,
    most: usize,
}

impl<V> Default for Answers<V> {
    fn default() -> Self {
        Self::of(REMEMBERED)
    }
}

impl<V> Answers<V> {
    fn of(most: usize) -> Self {
        Self {
            entries: Mutex::new(Entries {
                by_key: HashMap::new(),
                clock: 0,
            }),
            most,
        }
    }

    fn cell(&self, key: Key) -> Cell<V> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let used = entries.clock;
        if let Some(entry) = entries.by_key.get_mut(&key) {
            entry.used = used;
            return Arc::clone(&entry.cell);
        }
        if entries.by_key.len() >= self.most {
            entries.forget(self.most);
        }
        let cell: Cell<V> = Arc::default();
        let entry = Entry {
            used,
            cell: Arc::clone(&cell),
        };
        entries.by_key.insert(key, entry);
        cell
    }
}

impl<V> Entries<V> {
    /// Evicts the least recently used eighth, so that many insertions share the cost of
    /// one scan.
    fn forget(&mut self, most: usize) {
        let mut uses: Vec<u64> = self.by_key.values().map(|e| e.used).collect();
        uses.sort_unstable();
        let oldest_kept = uses.get(most / 8).copied().unwrap_or(self.clock);
        self.by_key.retain(|_, e| e.used > oldest_kept);
    }
}

impl<V: Clone> Answers<V> {
    /// Returns the cached result, or the result of `ask` and caches it for the returned
    /// duration. Concurrent callers with the same key wait for the same result; when
    /// the caller that runs `ask` is cancelled, the next one runs its own.
    pub(super) async fn get(
        &self,
        key: Key,
        ask: impl Future<Output = Result<(V, std::time::Duration), Status>>,
    ) -> Result<V, Status> {
        let began = Instant::now();
        let cell = self.cell(key);
        let mut cached = cell.lock().await;
        if let Some(outcome) = &*cached {
            let usable = match &outcome.result {
                Ok(_) => Instant::now() < outcome.until,
                Err(_) => outcome.at > began,
            };
            if usable {
                return outcome.result.clone();
            }
        }
        let result = ask.await;
        let at = Instant::now();
        let until = match &result {
            Ok((_, ttl)) => at + *ttl,
            Err(_) => at,
        };
        let result = result.map(|(value, _)| value);
        *cached = Some(Outcome {
            at,
            until,
            result: result.clone(),
        });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn key(n: u8) -> Key {
        [n; 32]
    }

    #[tokio::test(start_paused = true)]
    async fn one_asks_and_all_are_answered() {
        let answers = Answers::default();
        let calls = AtomicUsize::new(0);
        let ask = |result: Result<u32, Status>| {
            let calls = &calls;
            answers.get(key(1), async move {
                calls.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                result.map(|v| (v, TTL))
            })
        };
        let failed = Err(Status::internal("down"));
        let all = futures_util::future::join_all((0..5).map(|_| ask(failed.clone()))).await;
        assert!(all.iter().all(|r| *r == failed));
        assert_eq!(calls.load(Ordering::Relaxed), 1, "a failure is shared");
        let all = futures_util::future::join_all((0..5).map(|n| ask(Ok(n)))).await;
        assert!(all.iter().all(|r| *r == Ok(0)), "and not cached");
        tokio::time::advance(TTL / 2).await;
        assert_eq!(ask(Ok(7)).await, Ok(0), "a result is cached");
        tokio::time::advance(TTL).await;
        assert_eq!(ask(Ok(7)).await, Ok(7), "until it expires");
        let cancelled = tokio::time::timeout(Duration::from_millis(1), async {
            tokio::time::advance(TTL * 2).await;
            ask(Ok(8)).await
        });
        assert!(cancelled.await.is_err());
        assert_eq!(
            ask(Ok(9)).await,
            Ok(9),
            "a cancelled caller does not block the next"
        );
    }

    #[tokio::test]
    async fn what_is_used_stays() {
        let answers = Answers::of(8);
        for n in 0..100 {
            let fresh = answers.get(key(n), async move { Ok((u32::from(n), TTL)) });
            assert_eq!(fresh.await, Ok(u32::from(n)));
            let first = answers.get(key(0), async { Err(Status::internal("forgotten")) });
            assert_eq!(first.await, Ok(0));
            assert!(answers.entries.lock().by_key.len() <= 8);
        }
    }
}
