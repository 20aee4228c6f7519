//! Storage: one ordered, durable history of opaque values.
//!
//! registry ──[`Txn`]──► [`Store`] ──[`Batch`]──► watchcache
//!
//! Invariants: no engine parses a value. Nothing is visible before it is durable.
//! Revisions ascend and are never used twice.
//!
//! Entry points: [`Store`]; [`Embedded`], the engine in this process; [`etcd::Etcd`];
//! and [`encryption::EncryptedStore`] over either.

mod embedded;
pub mod encryption;
pub mod etcd;
pub mod format;
pub mod store;

pub use embedded::{Embedded, Fault, FaultKind, Health, Options, Stats};
pub use store::{
    Batch, Entry, Error, Event, Feed, MAX_REQUEST_BYTES, Op, Outcome, Page, Proof, Range, Result,
    Store, Txn, prefix_end,
};
