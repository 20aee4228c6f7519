//! The watch cache: for every storage prefix the present objects, the recent events and
//! any number of watchers (`apiserver/pkg/storage/cacher`).
//!
//! [`storage::Store`] ──range, watch──► [`Cacher`] (map + event ring) ──► lists, gets, [`CacheWatcher`]s
//!
//! Invariants: no value is parsed beyond its head, and none is copied for a reader, except objects
//! that resemble others, which share bytes ([`machinery::SimilarObjects`]).
//! Lists never block the writer: they read a persistent map. Watchers are pulled: a
//! watcher is a position in the shared ring and owns no buffer of live events. One that
//! falls behind the ring continues in the store's history, so that 410 follows compaction
//! only. A snapshot kept for exact reads keeps no value in memory that the ring does not
//! hold anyway. A cache with a limit that is exceeded holds nothing ([`CacheSizeLimit`]).
//!
//! Entry points: [`WatchCaches::new`], [`WatchCaches::cacher`], [`Cacher::list`],
//! [`Cacher::watch`].

mod cache_size;
mod cache_watcher;
mod cacher;
mod caches;
mod config;
mod continue_token;
mod error;
mod event;
mod event_ring;
mod filter;
mod history;
mod initial_events;
mod list;
mod params;
mod reflector;
mod ring_budget;
mod snapshot;
mod timer;
mod watch_cache;

#[cfg(test)]
mod tests;

pub use cache_size::{CacheSize, CacheSizeLimit};
pub use cache_watcher::{CacheWatcher, CacherWatchRequest, WatchStart};
pub use cacher::{Cacher, ReadFreshness, WatchCacheStats};
pub use caches::WatchCaches;
pub use config::{CacherOptions, SimilarityGrouping, WatchCacheConfig};
pub use error::Error;
pub use event::{CacheWatcherItem, ObjectEvent, ObjectEventType};
pub use filter::{ObjectPredicate, SelectionPredicate};
pub use list::{CacherList, CacherListRequest, ListRevision};
pub use params::ResourceVersionParams;
