//! The watch cache: for every storage prefix the present objects, the recent
//! events, and any number of watchers on them.
//!
//! [`storage::Store`] ──range, feed──► [`Cache`] (map + event ring) ──► lists, gets, [`Watcher`]s
//!
//! Invariants: no value is parsed beyond its head and none is copied for a reader.
//! Lists never block the writer: they walk a persistent map. Watchers are pulled:
//! a watcher is a position in the shared ring and owns no buffer of live events;
//! one that fell out of the ring goes on from the engine's history, so that 410
//! follows compaction only. A state kept for exact reads pins no value that the
//! ring does not hold anyway.
//!
//! Entry points: [`Hub::new`], [`Hub::resource`], [`Cache::list`], [`Cache::watch`].

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
