//! The limits of the caches.

use std::time::Duration;

/// The limits of the caches.
#[derive(Clone, Debug)]
pub struct WatchCacheConfig {
    /// The most bytes that the event rings of all caches hold together.
    pub ring_bytes: usize,
    /// How long a read waits for a revision or for the first fill.
    pub read_timeout: Duration,
    /// The interval between bookmarks; with jitter, each is up to a quarter earlier.
    pub bookmark_interval: Duration,
    /// The prefixes whose objects of one name resemble each other in all namespaces. A cache holds
    /// what they have in common once.
    pub similar_prefixes: Vec<String>,
}

impl Default for WatchCacheConfig {
    fn default() -> Self {
        Self {
            ring_bytes: 32 << 20,
            read_timeout: Duration::from_secs(3),
            bookmark_interval: Duration::from_secs(60),
            similar_prefixes: Vec::new(),
        }
    }
}
