//! All caches of one store and their tasks.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use storage::Store;

use crate::cacher::{Cacher, WatchCacheStats};
use crate::config::{CacherOptions, SimilarityGrouping, WatchCacheConfig};
use crate::error::Error;
use crate::ring_budget::{EvictableRing, RingBudget};
use crate::watch_cache::WatchCache;

/// Owns the caches of a store. [`WatchCaches::shutdown`] joins their tasks; without it
/// they end when this and the caches are dropped.
pub struct WatchCaches {
    store: Arc<dyn Store>,
    config: WatchCacheConfig,
    budget: Arc<RingBudget>,
    caches: Mutex<WatchCachesInner>,
}

#[derive(Default)]
struct WatchCachesInner {
    cachers: HashMap<String, Arc<Cacher>>,
    /// Of caches that are opened later, too.
    watch_floor: u64,
    closed: bool,
}

impl WatchCaches {
    pub fn new(store: Arc<dyn Store>, config: WatchCacheConfig) -> Arc<Self> {
        Arc::new(Self {
            store,
            budget: Arc::new(RingBudget::new(config.ring_bytes)),
            config,
            caches: Mutex::default(),
        })
    }

    pub fn config(&self) -> &WatchCacheConfig {
        &self.config
    }

    /// The cache of a storage prefix, which ends with a slash. Each call returns the same
    /// one; it is filled at its first use.
    pub fn cacher(&self, prefix: &str) -> Arc<Cacher> {
        let has_similar = self.config.similar_prefixes.iter().any(|p| p == prefix);
        let options = CacherOptions {
            similarity: has_similar.then_some(SimilarityGrouping::Name),
            limit: None,
        };
        self.open(prefix, prefix, &self.store, false, options)
    }

    /// The same interface without a cache, for kinds that must not take memory (Event). A
    /// prefix is either cached or not: the first call decides.
    pub fn uncached(&self, prefix: &str) -> Arc<Cacher> {
        let options = CacherOptions::default();
        self.open(prefix, prefix, &self.store, true, options)
    }

    /// The cache of a storage prefix of another store, such as one that converts the values
    /// of the store, or one of a member. `id` names it among all caches.
    pub fn cacher_of(
        &self,
        id: &str,
        prefix: &str,
        store: &Arc<dyn Store>,
        options: CacherOptions,
    ) -> Arc<Cacher> {
        self.open(id, prefix, store, false, options)
    }

    /// The store of the caches.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn open(
        &self,
        id: &str,
        prefix: &str,
        store: &Arc<dyn Store>,
        uncached: bool,
        options: CacherOptions,
    ) -> Arc<Cacher> {
        let mut caches = self.caches.lock();
        if let Some(cache) = caches.cachers.get(id) {
            return Arc::clone(cache);
        }
        let shared = WatchCache::new(
            prefix,
            Arc::clone(store),
            self.config.clone(),
            uncached,
            Arc::clone(&self.budget),
            options,
        );
        if !uncached {
            let ring: Weak<dyn EvictableRing> = Arc::<WatchCache>::downgrade(&shared);
            self.budget.add_ring(ring);
        }
        shared.raise_watch_floor(caches.watch_floor);
        let cache = Arc::new(Cacher::new(shared));
        if caches.closed {
            cache.close();
        }
        caches.cachers.insert(id.to_owned(), Arc::clone(&cache));
        cache
    }

    /// Removes a cache by its id, or its prefix, as when its CRD is deleted: ends its
    /// watchers and joins its task.
    pub async fn remove(&self, id: &str) {
        let cache = self.caches.lock().cachers.remove(id);
        if let Some(cache) = cache {
            cache.close();
            cache.join().await;
        }
    }

    /// Ends all watches with the error that makes clients list again. From now on a watch expires
    /// that starts before the present revision, or at one that does not exist yet: clients come
    /// from another server, or go to one, whose revisions say nothing here.
    pub async fn expire_watches(&self) -> Result<(), Error> {
        let revision = self.store.revision().await.map_err(Error::Storage)?;
        self.raise_watch_floor(revision.max(1));
        for cache in self.caches.lock().cachers.values() {
            cache.cache.expire_watches();
        }
        Ok(())
    }

    /// Lets watches expire that start at revisions that do not exist yet, as clients of another
    /// server may ask for.
    pub fn expect_foreign_revisions(&self) {
        self.raise_watch_floor(1);
    }

    fn raise_watch_floor(&self, revision: u64) {
        let mut caches = self.caches.lock();
        caches.watch_floor = caches.watch_floor.max(revision);
        for cache in caches.cachers.values() {
            cache.cache.raise_watch_floor(revision);
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
            sum += &cache.stats();
        }
        sum
    }
}
