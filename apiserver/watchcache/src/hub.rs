//! All caches of one store: their tasks and the byte budget that their rings share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use storage::Store;

use crate::cache::{Cache, Stats};
use crate::shared::Shared;

/// The limits of the caches.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most bytes that the event rings of all caches hold together.
    pub ring_bytes: usize,
    /// How long a read waits for a revision or for the first fill.
    pub wait: Duration,
    /// The interval between bookmarks; with jitter, each is up to a quarter earlier.
    pub bookmark: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_bytes: 32 << 20,
            wait: Duration::from_secs(3),
            bookmark: Duration::from_secs(60),
        }
    }
}

/// Owns the caches of a store. [`WatchCaches::shutdown`] joins their tasks; without it
/// they end when this and the caches are dropped.
pub struct Hub {
    store: Arc<dyn Store>,
    config: Config,
    budget: Arc<Budget>,
    caches: Mutex<Caches>,
}

#[derive(Default)]
struct Caches {
    open: HashMap<String, Arc<Cache>>,
    closed: bool,
}

impl Hub {
    pub fn new(store: Arc<dyn Store>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            store,
            budget: Arc::new(Budget::new(config.ring_bytes)),
            config,
            caches: Mutex::default(),
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The cache of a storage prefix, which ends with a slash. Each call returns the same
    /// one; it is filled at its first use.
    pub fn resource(&self, prefix: &str) -> Arc<Cache> {
        self.open(prefix, false)
    }

    /// The same interface without a cache, for kinds that must not take memory (Event). A
    /// prefix is either cached or not: the first call decides.
    pub fn uncached(&self, prefix: &str) -> Arc<Cache> {
        self.open(prefix, true)
    }

    fn open(&self, prefix: &str, uncached: bool) -> Arc<Cache> {
        let mut caches = self.caches.lock();
        if let Some(cache) = caches.open.get(prefix) {
            return Arc::clone(cache);
        }
        let shared = Shared::new(
            prefix,
            Arc::clone(&self.store),
            self.config.clone(),
            uncached,
            Arc::clone(&self.budget),
        );
        if !uncached {
            self.budget.join(&shared);
        }
        let cache = Arc::new(Cache::new(shared));
        if caches.closed {
            cache.close();
        }
        caches.open.insert(prefix.to_owned(), Arc::clone(&cache));
        cache
    }

    /// Removes a cache, as when its CRD is deleted: ends its watchers and joins its task.
    pub async fn remove(&self, prefix: &str) {
        let cache = self.caches.lock().open.remove(prefix);
        if let Some(cache) = cache {
            cache.close();
            cache.join().await;
        }
    }

    /// Ends all watchers and joins all tasks. Later reads fail with `NotReady`.
    pub async fn shutdown(&self) {
        let caches: Vec<Arc<Cache>> = {
            let mut caches = self.caches.lock();
            caches.closed = true;
            caches.open.values().cloned().collect()
        };
        for cache in &caches {
            cache.close();
        }
        for cache in &caches {
            cache.join().await;
        }
    }

    /// The sums over all caches.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for cache in self.caches.lock().open.values() {
            sum.add(&cache.stats());
        }
        sum
    }
}

/// The byte budget of all rings. Over the limit the largest ring drops its oldest events,
/// so that a busy resource does not evict the events of others.
pub(crate) struct Budget {
    limit: usize,
    total: AtomicUsize,
    rings: Mutex<Vec<Weak<Shared>>>,
}

impl Budget {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            total: AtomicUsize::new(0),
            rings: Mutex::default(),
        }
    }

    fn join(&self, shared: &Arc<Shared>) {
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
        let rings: Vec<Arc<Shared>> = self.rings.lock().iter().filter_map(Weak::upgrade).collect();
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
