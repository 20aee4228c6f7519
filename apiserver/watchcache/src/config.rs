//! The limits of the caches, and which of their objects resemble each other.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use machinery::Object;

use crate::cache_size::CacheSizeLimit;
use crate::filter::last_segment;

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

/// The groups of a cache whose objects resemble each other. Objects of a group hold once what they
/// have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimilarityGrouping {
    /// Objects of one name in all namespaces, as the Works of a template.
    Name,
    /// Objects of one controller, as the pods of a ReplicaSet.
    Controller,
}

/// The properties of one cache.
#[derive(Default)]
pub struct CacherOptions {
    /// Without it, no object resembles another.
    pub similarity: Option<SimilarityGrouping>,
    /// Without it, the cache holds all that the store has.
    pub limit: Option<Arc<dyn CacheSizeLimit>>,
}

impl SimilarityGrouping {
    /// The group of an object; `None` if it resembles no other.
    pub(crate) fn group<'k>(self, key: &'k str, object: &Object) -> Option<Cow<'k, str>> {
        match self {
            Self::Name => Some(last_segment(key).into()),
            Self::Controller => {
                let controller = object.meta().controller()?;
                Some(controller.uid.to_string().into())
            }
        }
    }
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
