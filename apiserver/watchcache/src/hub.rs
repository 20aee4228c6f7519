//! All caches of one process: their tasks and the bytes their rings share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use storage::Store;

use crate::cache::{Cache, Stats};
use crate::shared::Shared;

/// The limits of a hub.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the event rings of all caches may weigh together, in bytes.
    pub ring_bytes: usize,
    /// How long a read waits for a revision or for the first fill.
    pub wait: Duration,
    /// The time between bookmarks; each is up to a quarter earlier.
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

/// The owner of caches. [`Hub::shutdown`] joins their tasks; without it they end by
/// themselves when the hub and its caches are dropped.
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

    /// The cache of a storage prefix, which ends with a slash. Always the same one;
    /// it is filled at its first use.
    pub fn resource(&self, prefix: &str) -> Arc<Cache> {
        self.open(prefix, false)
    }

    /// The same interface straight on the store, for what must not weigh on memory
    /// (the kind Event). A prefix is either cached or not: the first call decides.
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

    /// Gives a cache up, as when its CRD is deleted: its watchers end, its task is
    /// joined.
    pub async fn remove(&self, prefix: &str) {
        let cache = self.caches.lock().open.remove(prefix);
        if let Some(cache) = cache {
            cache.close();
            cache.join().await;
        }
    }

    /// Ends all watchers and joins all tasks. Readers are answered `NotReady` from
    /// then on.
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

/// The bytes shared by all rings. Over the limit, the heaviest ring gives its
/// oldest events, so that a busy resource does not cost the quiet ones theirs.
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

    /// Gives bytes back; `None`: all of this ring.
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
        // A little more than needed, so that not every event looks for the heaviest.
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
