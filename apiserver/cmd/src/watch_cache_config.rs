//! The options of the watch caches.

use watchcache::WatchCacheConfig;

use crate::storage_engine::WORK_PREFIX;

/// The Works of a template share their bytes in memory.
pub(crate) fn watch_cache_config() -> WatchCacheConfig {
    WatchCacheConfig {
        similar_prefixes: vec![WORK_PREFIX.to_owned()],
        ..WatchCacheConfig::default()
    }
}
