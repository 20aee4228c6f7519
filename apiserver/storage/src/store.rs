//! The contract of an engine: a revisioned key-value store that looks like etcd
//! and promises nothing that etcd 3.4 cannot do.
//!
//! Enters: keys and opaque values. Leaves: entries, and one ordered feed of
//! events. An engine never parses a value.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// The largest key and value together: etcd's `--max-request-bytes` of 1.5 MiB, less
/// what the transaction around them takes.
pub const MAX_REQUEST_BYTES: usize = (3 << 19) - (4 << 10);

/// Why an engine refused, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The revision asked for is compacted away; start over at a newer one.
    #[error("required revision has been compacted at {at}")]
    Compacted { at: u64 },
    /// The revision asked for does not exist yet.
    #[error("required revision {asked} is a future revision (current {current})")]
    Future { asked: u64, current: u64 },
    /// The request is larger than the engine takes.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// No space left; reads go on.
    #[error("no space left in the store: {0}")]
    NoSpace(String),
    /// The disk fails to read, write or sync. Whether a write happened is not known; the
    /// engine goes on trying.
    #[error("the disk of the store fails: {0}")]
    Disk(String),
    /// Not now: no leader, time-out, closed. Worth a retry.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The data cannot be trusted or written any more; the process should end.
    #[error("store failed: {0}")]
    Fatal(String),
}

/// The result of a call to an engine.
pub type Result<T> = std::result::Result<T, Error>;

/// A key with its value at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    /// The revision of the last write to this key.
    pub revision: u64,
}

/// What to read: keys in `[start, end)`, ascending.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub start: String,
    /// Exclusive.
    pub end: String,
    /// 0: no limit.
    pub limit: usize,
    /// 0: the newest state.
    pub at: u64,
}

impl Range {
    /// One key.
    pub fn key(key: &str) -> Self {
        Self {
            start: key.to_owned(),
            end: format!("{key}\0"),
            limit: 0,
            at: 0,
        }
    }

    /// Everything below a prefix.
    pub fn prefix(prefix: &str) -> Self {
        Self {
            start: prefix.to_owned(),
            end: prefix_end(prefix),
            limit: 0,
            at: 0,
        }
    }
}

/// The smallest key greater than every key with this prefix. Prefixes end with a
/// slash, so the last byte can always be raised.
pub fn prefix_end(prefix: &str) -> String {
    let mut bytes = prefix.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| "\u{10ffff}".into())
}

/// The answer to a [`Range`].
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Keys in the range beyond those returned (etcd: count).
    pub remaining: u64,
    /// The revision at which the page is true.
    pub revision: u64,
}

/// What a transaction writes when its condition holds.
#[derive(Clone, Debug)]
pub enum Op {
    /// Stores a value; with a time to live the key is deleted when it has passed
    /// (at most a minute late), and the deletion is an event. A later put without
    /// one lifts it.
    Put { value: Bytes, ttl: Option<Duration> },
    /// Removes the key. One that is absent cannot be deleted: with `expected` 0
    /// the outcome is always a conflict.
    Delete,
}

/// A transaction on one key (etcd: `If mod_revision(key) = expected Then op Else
/// get`).
#[derive(Clone, Debug)]
pub struct Txn {
    pub key: Arc<str>,
    /// The revision of the key's last write; 0: the key must be absent.
    pub expected: u64,
    pub op: Op,
}

/// What became of a transaction.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Durable, at this revision.
    Committed { revision: u64 },
    /// The condition did not hold; this is there instead.
    Conflict { current: Option<Entry> },
}

/// One change of one key.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: Arc<str>,
    pub revision: u64,
    /// `None`: deleted.
    pub value: Option<Bytes>,
    /// What was there before (etcd: prev_kv).
    pub previous: Option<Entry>,
}

/// Events of one or more whole revisions.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    /// Everything up to this revision has been delivered (etcd: progress).
    pub revision: u64,
}

/// A feed of events. After an error it is over; a caller resumes with a new one.
#[async_trait]
pub trait Feed: Send {
    /// The next events, in ascending revisions, without gaps or repetitions. Also
    /// wakes with an empty batch when only the progress advanced. Cancel-safe.
    async fn next(&mut self) -> Result<Batch>;
}

/// How a state that was built from a feed is proven to be the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// [`Store::revision_of`] costs nothing, and feeds reach it by themselves.
    Free,
    /// It is a round trip, and so is the progress of a feed that it asks for.
    Asked,
    /// Not at all: the progress of feeds says nothing. What must be new is read from
    /// the store.
    None,
}

/// An engine. A write is visible to reads and feeds only when it is durable;
/// revisions ascend by one per committed transaction and are never used twice.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What a cache may do to be sure that it is new. It can change while the engine
    /// runs.
    fn proof(&self) -> Proof {
        Proof::Free
    }
    /// The newest revision, linearised (etcd: header of an empty range). Every feed
    /// soon reports a progress of at least this, without any further write (etcd:
    /// progress request), unless the proof is [`Proof::None`].
    async fn revision(&self) -> Result<u64>;
    /// The revision that a feed of exactly this prefix must have reached to know
    /// every change acknowledged so far. It may be older than [`Store::revision`]
    /// where other keys were written since, and then wakes nobody: the cheap
    /// question before an answer from a cache.
    async fn revision_of(&self, prefix: &str) -> Result<u64> {
        let _ = prefix;
        self.revision().await
    }
    /// One key in the newest state.
    async fn get(&self, key: &str) -> Result<Option<Entry>>;
    /// One key in the newest state, where a write of the same value would store it in
    /// another form, such as under another encryption key; `None` where it would not.
    async fn stale(&self, key: &str) -> Result<Option<Entry>> {
        let _ = key;
        Ok(None)
    }
    /// Keys in order, at one revision.
    async fn range(&self, range: &Range) -> Result<Page>;
    /// One transaction. When the call is dropped the transaction may or may not
    /// happen. Key and value together take up to [`MAX_REQUEST_BYTES`].
    async fn commit(&self, txn: Txn) -> Result<Outcome>;
    /// Events of keys with `prefix` whose revision is greater than `after`, which
    /// may neither lie before the compaction nor in the future.
    async fn watch(&self, prefix: &str, after: u64) -> Result<Box<dyn Feed>>;
    /// Forgets history before `revision`, which must stay readable itself. Nothing
    /// happens when that is forgotten already.
    async fn compact(&self, revision: u64) -> Result<()>;
}
