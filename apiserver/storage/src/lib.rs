//! Storage: one ordered, durable history of opaque values.
//!
//! registry ──[`Txn`]──► [`Store`] ──[`Batch`]──► watchcache
//!
//! Invariants: no engine parses a value. Nothing is visible before it is durable.
//! Revisions ascend and are never used twice.
//!
//! Entry points: [`Store`].

pub mod store;

pub use store::{
    Batch, Entry, Error, Event, Feed, Op, Outcome, Page, Range, Result, Store, Txn, prefix_end,
};
