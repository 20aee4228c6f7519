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
const MAX_CACHED_REVIEWS: usize = 8192;

/// SHA-256 digest of a review.
pub(crate) type ReviewDigest = [u8; 32];

struct CachedReview<V> {
    finished: Instant,
    /// Valid until then.
    expires: Instant,
    result: Result<V, Status>,
}

type ReviewSlot<V> = Arc<tokio::sync::Mutex<Option<CachedReview<V>>>>;

struct ReviewCacheEntry<V> {
    last_used: u64,
    slot: ReviewSlot<V>,
}

struct ReviewCacheInner<V> {
    by_key: HashMap<ReviewDigest, ReviewCacheEntry<V>>,
    /// Incremented on every use.
    uses: u64,
}

pub(crate) struct ReviewCache<V> {
    entries: Mutex<ReviewCacheInner<V>>,
    capacity: usize,
}

impl<V> Default for ReviewCache<V> {
    fn default() -> Self {
        Self::with_capacity(MAX_CACHED_REVIEWS)
    }
}

impl<V> ReviewCache<V> {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            entries: Mutex::new(ReviewCacheInner {
                by_key: HashMap::new(),
                uses: 0,
            }),
            capacity,
        }
    }

    fn slot(&self, key: ReviewDigest) -> ReviewSlot<V> {
        let mut entries = self.entries.lock();
        entries.uses += 1;
        let used = entries.uses;
        if let Some(entry) = entries.by_key.get_mut(&key) {
            entry.last_used = used;
            return Arc::clone(&entry.slot);
        }
        if entries.by_key.len() >= self.capacity {
            entries.evict_least_recently_used(self.capacity);
        }
        let cell: ReviewSlot<V> = Arc::default();
        let entry = ReviewCacheEntry {
            last_used: used,
            slot: Arc::clone(&cell),
        };
        entries.by_key.insert(key, entry);
        cell
    }
}

impl<V> ReviewCacheInner<V> {
    /// Evicts the least recently used eighth, so that many insertions share the cost of
    /// one scan.
    fn evict_least_recently_used(&mut self, capacity: usize) {
        let mut uses: Vec<u64> = self.by_key.values().map(|e| e.last_used).collect();
        uses.sort_unstable();
        let oldest_kept = uses.get(capacity / 8).copied().unwrap_or(self.uses);
        self.by_key.retain(|_, e| e.last_used > oldest_kept);
    }
}

impl<V: Clone> ReviewCache<V> {
    /// Returns the cached result, or the result of `ask` and caches it for the returned
    /// duration. Concurrent callers with the same key wait for the same result; when
    /// the caller that runs `ask` is cancelled, the next one runs its own.
    pub(crate) async fn get_or_review(
        &self,
        key: ReviewDigest,
        ask: impl Future<Output = Result<(V, std::time::Duration), Status>>,
    ) -> Result<V, Status> {
        let start = Instant::now();
        let cell = self.slot(key);
        let mut cached = cell.lock().await;
        if let Some(outcome) = &*cached {
            let usable = match &outcome.result {
                Ok(_) => Instant::now() < outcome.expires,
                Err(_) => outcome.finished > start,
            };
            if usable {
                return outcome.result.clone();
            }
        }
        let result = ask.await;
        let at = Instant::now();
        let expires = match &result {
            Ok((_, ttl)) => at + *ttl,
            Err(_) => at,
        };
        let result = result.map(|(value, _)| value);
        *cached = Some(CachedReview {
            finished: at,
            expires,
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

    fn key(n: u8) -> ReviewDigest {
        [n; 32]
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_reviews_are_merged() {
        let cache = ReviewCache::default();
        let calls = AtomicUsize::new(0);
        let ask = |result: Result<u32, Status>| {
            let calls = &calls;
            cache.get_or_review(key(1), async move {
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
    async fn recently_used_reviews_stay_cached() {
        let cache = ReviewCache::with_capacity(8);
        for n in 0..100 {
            let fresh = cache.get_or_review(key(n), async move { Ok((u32::from(n), TTL)) });
            assert_eq!(fresh.await, Ok(u32::from(n)));
            let first = cache.get_or_review(key(0), async { Err(Status::internal("forgotten")) });
            assert_eq!(first.await, Ok(0));
            assert!(cache.entries.lock().by_key.len() <= 8);
        }
    }
}
