//! The watch cache: for every storage prefix the present objects, the recent events and
//! any number of watchers (`apiserver/pkg/storage/cacher`).
//!
//! [`storage::Store`] ──range, watch──► [`Cacher`] (map + event ring) ──► lists, gets, [`CacheWatcher`]s
//!
//! Invariants: no value is parsed beyond its head, and none is copied for a reader.
//! Lists never block the writer: they read a persistent map. Watchers are pulled: a
//! watcher is a position in the shared ring and owns no buffer of live events. One that
//! falls behind the ring continues in the store's history, so that 410 follows compaction
//! only. A snapshot kept for exact reads keeps no value in memory that the ring does not
//! hold anyway.
//!
//! Entry points: [`WatchCaches::new`], [`WatchCaches::cacher`], [`Cacher::list`],
//! [`Cacher::watch`].

mod cache;
mod error;
mod event;
mod fill;
mod filter;
mod history;
mod hub;
mod initial;
mod list;
mod params;
mod ring;
mod shared;
mod snapshot;
mod timer;
mod token;
mod watcher;

#[cfg(test)]
mod tests;

pub use cache::{Cache, Freshness, Stats};
pub use error::Error;
pub use event::{Change, Delivery, Item};
pub use filter::{Filter, Predicate};
pub use hub::{Config, Hub};
pub use list::{At, ListReply, ListRequest};
pub use params::Params;
pub use watcher::{Start, WatchRequest, Watcher};
