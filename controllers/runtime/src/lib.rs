//! What every controller runs on: copies of resources, a queue with two lanes and
//! workers, events, leader election.
//!
//! server ──watch──► [`Informer`] ──change──► [`Queue`] ──key──► [`run_workers`] ──► reconcile ──► writes, [`Recorder`]
//!
//! Invariants: no polling where an event exists; one key is in the hands of one
//! worker at a time; who waits for a server that may hang steps [`aside`]; nothing
//! here blocks a caller; every task has an owner
//! ([`Tasks`]) and ends with its [`Shutdown`].
//!
//! Entry points: [`Informers`], [`Queue`], [`run_workers`], [`aside`],
//! [`Recorder`], [`Election`], [`Fence`], [`HostWorkloads`].

mod aside;
mod bucket;
mod election;
mod events;
mod fence;
mod figures;
mod host;
mod queue;
mod shards;
mod sweep;
mod workers;

pub use aside::aside;
pub use client::{Change, Informer, Informers, ObjectRef, Select, Shutdown, Tasks};
pub use election::{Election, Term};
pub use events::Recorder;
pub use fence::Fence;
pub use figures::Name;
pub use host::HostWorkloads;
pub use queue::Queue;
pub use shards::ShardedMap;
pub use sweep::IndexSweep;
pub use workers::{Action, run_workers};
