//! Building blocks shared by all controllers: informers, a workqueue with workers, event
//! recording, leader election.
//!
//! server ──watch──► [`Informer`] ──change──► [`Workqueue`] ──key──► [`run_workers`] ──► reconcile ──► writes, [`EventRecorder`]
//!
//! Invariants: nothing polls where an event exists; at most one worker processes a key
//! at a time; a reconciliation that calls a server which may hang runs the call in a
//! [`blocking_section`]; nothing here blocks a caller; every task has an owner
//! ([`TaskGroup`]) and ends with its [`ShutdownToken`].
//!
//! Entry points: [`InformerFactory`], [`Workqueue`], [`run_workers`], [`blocking_section`],
//! [`EventRecorder`], [`LeaderElector`], [`LeaderFence`], [`HostWorkloads`].

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
