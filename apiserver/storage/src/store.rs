//! The contract of a storage engine: a revisioned key-value store that looks like etcd
//! and promises nothing that etcd 3.4 cannot do. Values are opaque: an engine never
//! parses one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// The largest key and value together, in bytes: etcd's `--max-request-bytes` of 1.5 MiB,
/// less the overhead of the transaction.
pub const MAX_REQUEST_BYTES: usize = (3 << 19) - (4 << 10);

/// An error of a storage engine; the variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The requested revision is compacted; start over at a newer one. `at` is the compaction
    /// revision, or, where etcd does not answer for it, the lowest that it can be.
    #[error("required revision has been compacted at {at}")]
    Compacted { at: u64 },
    /// The requested revision does not exist yet.
    #[error("required revision {requested} is a future revision (current {current})")]
    Future { requested: u64, current: u64 },
    /// Key and value exceed [`MAX_REQUEST_BYTES`].
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// No space is left for writes; reads succeed.
    #[error("no space left in the store: {0}")]
    NoSpace(String),
    /// The disk fails to read, write or sync. Whether a write was applied is not known; the
    /// engine retries.
    #[error("the disk of the store fails: {0}")]
    Disk(String),
    /// A value cannot be converted to or from its stored version. Only a store that converts
    /// values returns it; the same call may succeed later.
    #[error("{0}")]
    Conversion(String),
    /// Temporarily unavailable (no leader, timeout, closed). The caller can retry.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The store has failed permanently; the process should exit.
    #[error("store failed: {0}")]
    Fatal(String),
}

/// The result of a call to an engine.
pub type StoreResult<T> = Result<T, Error>;

/// A key with its value at one revision (etcd: KeyValue).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Arc<str>,
    pub value: Bytes,
    /// The revision of the last write to this key (etcd: mod_revision).
    pub mod_revision: u64,
}

/// A read of the keys in `[start, end)`, in ascending order.
#[derive(Clone, Debug, Default)]
pub struct RangeRequest {
    pub start: String,
    /// Exclusive.
    pub end: String,
    /// The most keys to return; 0: no limit.
    pub limit: usize,
    /// The revision to read at; 0: the newest.
    pub revision: u64,
}

impl RangeRequest {
    /// The range of one key.
    pub fn key(key: &str) -> Self {
        Self {
            start: key.to_owned(),
            end: format!("{key}\0"),
            limit: 0,
            revision: 0,
        }
    }

    /// The range of all keys with a prefix.
    pub fn prefix(prefix: &str) -> Self {
        Self {
            start: prefix.to_owned(),
            end: prefix_end(prefix),
            limit: 0,
            revision: 0,
        }
    }
}

/// The smallest key greater than every key with this prefix. Prefixes end with a slash,
/// so the last byte can always be incremented.
pub fn prefix_end(prefix: &str) -> String {
    let mut bytes = prefix.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| "\u{10ffff}".into())
}

/// The response to a [`RangeRequest`].
#[derive(Clone, Debug, Default)]
pub struct RangeResponse {
    pub kvs: Vec<KeyValue>,
    /// The number of keys in the range beyond those returned (etcd: count).
    pub remaining: u64,
    /// The revision at which the range was read.
    pub revision: u64,
}

/// The write of a transaction, applied when its condition holds.
#[derive(Clone, Debug)]
pub enum SingleKeyTxnOp {
    /// Stores a value. With a time to live the engine deletes the key when it has passed
    /// (at most a minute late), with an event. A later put without a time to live removes
    /// it.
    Put { value: Bytes, ttl: Option<Duration> },
    /// Deletes the key. An absent key cannot be deleted: with `expected` 0 the response is
    /// always a conflict.
    Delete,
}

/// A transaction on one key (etcd: `If mod_revision(key) = expected Then op Else
/// get`).
#[derive(Clone, Debug)]
pub struct SingleKeyTxn {
    pub key: Arc<str>,
    /// The revision of the key's last write; 0: the key must be absent.
    pub expected: u64,
    pub op: SingleKeyTxnOp,
}

/// The result of a transaction.
#[derive(Clone, Debug)]
pub enum TxnResponse {
    /// Durable, at this revision.
    Committed { revision: u64 },
    /// The condition did not hold; `current` is the key's present state.
    Conflict { current: Option<KeyValue> },
}

/// One change of one key (etcd: mvccpb.Event).
#[derive(Clone, Debug)]
pub struct StoreEvent {
    pub key: Arc<str>,
    pub revision: u64,
    /// `None`: deleted.
    pub value: Option<Bytes>,
    /// The state before the change (etcd: prev_kv).
    pub previous: Option<KeyValue>,
}

/// Events of one or more complete revisions.
#[derive(Clone, Debug, Default)]
pub struct WatchResponse {
    pub events: Vec<StoreEvent>,
    /// Everything up to this revision has been delivered (etcd: progress).
    pub revision: u64,
}

/// A watch of the store. After an error it has ended; the caller resumes with a new one.
#[async_trait]
pub trait StoreWatch: Send {
    /// The next events, in ascending revisions, without gaps or repetitions. Also returns
    /// an empty response when only the progress advanced. Cancel-safe.
    async fn next(&mut self) -> StoreResult<WatchResponse>;
}

/// Whether and how a cache that is built from a watch supports consistent reads
/// (Kubernetes: ConsistentListFromCache).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistentReadSupport {
    /// [`Store::prefix_revision`] is local and free, and watches reach it by themselves.
    Local,
    /// [`Store::prefix_revision`] is a round trip, and so is the progress request that it
    /// causes.
    ProgressRequest,
    /// Unsupported: the progress of watches is not reliable. Consistent reads go to the
    /// store.
    Unsupported,
}

/// A storage engine. A write is visible to reads and watches only when it is durable;
/// revisions ascend by one per committed transaction and are never used twice.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// How a cache of this store supports consistent reads. The answer can change while
    /// the engine runs.
    fn consistent_read_support(&self) -> ConsistentReadSupport {
        ConsistentReadSupport::Local
    }
    /// The newest revision, linearizable (etcd: header of an empty range). Every watch
    /// soon reports a progress of at least this revision without any further write (etcd:
    /// progress request), except under [`ConsistentReadSupport::Unsupported`].
    async fn revision(&self) -> StoreResult<u64>;
    /// The revision that a watch of exactly this prefix must have reached to include every
    /// change acknowledged so far. It may be older than [`Store::revision`] where other
    /// keys were written since; then no watch is woken, which makes consistent reads from
    /// a cache cheap.
    async fn prefix_revision(&self, prefix: &str) -> StoreResult<u64> {
        let _ = prefix;
        self.revision().await
    }
    /// One key at the newest revision.
    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>>;
    /// One key at the newest revision if its stored form is stale: a write of the same
    /// value would store it differently, such as under another encryption key. `None`
    /// otherwise.
    async fn get_stale(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let _ = key;
        Ok(None)
    }
    /// The keys of a range, in order, at one revision.
    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse>;
    /// Commits one transaction. When the call is dropped, the transaction may or may not be
    /// applied. Key and value together take up to [`MAX_REQUEST_BYTES`].
    async fn commit(&self, txn: SingleKeyTxn) -> StoreResult<TxnResponse>;
    /// Watches the keys with `prefix` for events with a revision greater than `after`.
    /// Fails when `after` is compacted or in the future.
    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>>;
    /// Compacts the history before `revision`, which itself stays readable. Does nothing
    /// when that is compacted already.
    async fn compact(&self, revision: u64) -> StoreResult<()>;
}
