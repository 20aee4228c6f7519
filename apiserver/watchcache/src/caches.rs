//! All caches of one store: their tasks and the byte budget that their rings share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use storage::Store;

use crate::cacher::{Cacher, WatchCacheStats};
use crate::watch_cache::WatchCache;

/// The limits of the caches.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most bytes that the event rings of all caches hold together.
    pub ring_bytes: usize,
    /// How long a read waits for a revision or for the first fill.
    pub read_timeout: Duration,
    /// The interval between bookmarks; with jitter, each is up to a quarter earlier.
    pub bookmark_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_bytes: 32 << 20,
            read_timeout: Duration::from_secs(3),
            bookmark_interval: Duration::from_secs(60),
        }
    }
}

/// Owns the caches of a store. [`WatchCaches::shutdown`] joins their tasks; without it
/// they end when this and the caches are dropped.
pub struct WatchCaches {
    store: Arc<dyn Store>,
    config: Config,
    budget: Arc<RingBudget>,
    caches: Mutex<OpenCaches>,
}

#[derive(Default)]
struct OpenCaches {
    cachers: HashMap<String, Arc<Cacher>>,
    closed: bool,
}

impl WatchCaches {
    pub fn new(store: Arc<dyn Store>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            store,
            budget: Arc::new(RingBudget::new(config.ring_bytes)),
            config,
            caches: Mutex::default(),
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The cache of a storage prefix, which ends with a slash. Each call returns the same
    /// one; it is filled at its first use.
    pub fn cacher(&self, prefix: &str) -> Arc<Cacher> {
        self.open(prefix, false)
    }

    /// The same interface without a cache, for kinds that must not take memory (Event). A
    /// prefix is either cached or not: the first call decides.
    pub fn uncached(&self, prefix: &str) -> Arc<Cacher> {
        self.open(prefix, true)
    }

    fn open(&self, prefix: &str, uncached: bool) -> Arc<Cacher> {
        let mut caches = self.caches.lock();
        if let Some(cache) = caches.cachers.get(prefix) {
            return Arc::clone(cache);
        }
        let shared = WatchCache::new(
            prefix,
            Arc::clone(&self.store),
            self.config.clone(),
            uncached,
            Arc::clone(&self.budget),
        );
        if !uncached {
            self.budget.add_ring(&shared);
        }
        let cache = Arc::new(Cacher::new(shared));
        if caches.closed {
            cache.close();
        }
        caches.cachers.insert(prefix.to_owned(), Arc::clone(&cache));
        cache
    }

    /// Removes a cache, as when its CRD is deleted: ends its watchers and joins its task.
    pub async fn remove(&self, prefix: &str) {
        let cache = self.caches.lock().cachers.remove(prefix);
        if let Some(cache) = cache {
            cache.close();
            cache.join().await;
        }
    }

    /// Ends all watchers and joins all tasks. Later reads fail with `NotReady`.
    pub async fn shutdown(&self) {
        let caches: Vec<Arc<Cacher>> = {
            let mut caches = self.caches.lock();
            caches.closed = true;
            caches.cachers.values().cloned().collect()
        };
        for cache in &caches {
            cache.close();
        }
        for cache in &caches {
            cache.join().await;
        }
    }

    /// The sums over all caches.
    pub fn stats(&self) -> WatchCacheStats {
        let mut sum = WatchCacheStats::default();
        for cache in self.caches.lock().cachers.values() {
            sum.add(&cache.stats());
        }
        sum
    }
}

/// The byte budget of all rings. Over the limit the largest ring drops its oldest events,
/// so that a busy resource does not evict the events of others.
pub(crate) struct RingBudget {
    limit: usize,
    total: AtomicUsize,
    rings: Mutex<Vec<Weak<WatchCache>>>,
}

impl RingBudget {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            total: AtomicUsize::new(0),
            rings: Mutex::default(),
        }
    }

    fn add_ring(&self, shared: &Arc<WatchCache>) {
        let mut rings = self.rings.lock();
        rings.retain(|ring| ring.strong_count() > 0);
        rings.push(Arc::downgrade(shared));
    }

    pub(crate) fn charge(&self, ring: &AtomicUsize, bytes: usize) {
        ring.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns bytes to the budget; `None`: all of this ring.
    pub(crate) fn release(&self, ring: &AtomicUsize, bytes: Option<usize>) {
        let bytes = match bytes {
            Some(bytes) => {
                ring.fetch_sub(bytes, Ordering::Relaxed);
                bytes
            }
            None => ring.swap(0, Ordering::Relaxed),
        };
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn trim(&self) {
        if self.total.load(Ordering::Relaxed) <= self.limit {
            return;
        }
        let rings: Vec<Arc<WatchCache>> =
            self.rings.lock().iter().filter_map(Weak::upgrade).collect();
        // Frees a little more than needed, so that not every event searches the rings.
        let target = self.limit - self.limit / 16;
        while self.total.load(Ordering::Relaxed) > target {
            let heaviest = rings
                .iter()
                .max_by_key(|ring| ring.ring_bytes.load(Ordering::Relaxed));
            let Some(ring) = heaviest else { return };
            if !ring.evict() {
                return;
            }
        }
    }
}
