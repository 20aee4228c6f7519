//! Storage: a revisioned key-value store with one ordered, durable history, as etcd.
//!
//! registry ──[`SingleKeyTxn`]──► [`Store`] ──[`WatchResponse`]──► watchcache
//!
//! Invariants: no engine parses a value. No write is visible before it is durable.
//! Revisions ascend and are never used twice.
//!
//! Both engines store similar values as differences from one of them ([`DeltaOptions`]).
//!
//! Entry points: [`Store`]; its engines [`EmbeddedStore`] (SQLite in this process) and
//! [`etcd::EtcdStore`]; and [`encryption::EncryptedStore`] over either.
//! [`backup::BackupStream`] takes backups of an engine; [`restore_embedded`] and
//! [`etcd::restore`] restore them.

pub mod backup;
mod delta;
mod embedded;
pub mod encryption;
pub mod etcd;
pub mod format;
pub mod store;

pub use delta::DeltaOptions;
pub use embedded::{
    EmbeddedRestoreOptions, EmbeddedStore, EmbeddedStoreOptions, EmbeddedStoreStats, StoreFault,
    StoreFaultKind, StoreHealth, restore as restore_embedded,
};
pub use store::{
    ConsistentReadSupport, Error, KeyValue, MAX_REQUEST_BYTES, RangeRequest, RangeResponse,
    SingleKeyTxn, SingleKeyTxnOp, Store, StoreEvent, StoreResult, StoreWatch, TxnResponse,
    WatchResponse, prefix_end,
};
