//! The options of the watch caches.

use watchcache::WatchCacheConfig;

/// Whose objects resemble those of the same name in other namespaces: a template has a Work of
/// one name in the namespaces of all its clusters.
const WORKS_PREFIX: &str = "/registry/work.karmada.io/works/";

pub(crate) fn watch_cache_config() -> WatchCacheConfig {
    WatchCacheConfig {
        similar_prefixes: vec![WORKS_PREFIX.to_owned()],
        ..WatchCacheConfig::default()
    }
}
