//! The embedded engine: SQLite behind one writer thread with group commit. It uses its
//! data directory only, or no file at all when it is opened in memory.
//!
//! commit ──queue──► writer thread: compare ─► one SQLite transaction ─► publish ─► replies
//!                                                                          │
//!                  watches ◄── ring of recent events, else rows ◄──────────┘
//!
//! The index of all keys and their revisions is in memory ([`mvcc_index`]), as in etcd;
//! values are on disk, and in memory while their event is recent. What readers and
//! watches see changes only in `WatchNotifier::publish`, after the commit: the index and
//! the groups of the notifier change under one lock.

mod batch_tx;
mod checkpoint;
mod database;
mod delta_encoder;
mod engine;
mod event_ring;
#[cfg(test)]
mod failpoint;
mod fault_classification;
mod health;
mod history_row;
mod mvcc_index;
mod notifier;
mod options;
mod read_pool;
mod recovery;
mod restore;
mod schema;
mod snapshot;
#[cfg(test)]
mod tests;
mod watcher;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, oneshot, watch};

use self::engine::EmbeddedStoreState;
use self::health::StoreHealthReporter;
pub use self::health::{StoreFault, StoreFaultKind, StoreHealth};
use self::mvcc_index::IndexEntry;
use self::notifier::WatchNotifier;
pub use self::options::EmbeddedStoreOptions;
use self::read_pool::ReadConnectionPool;
pub use self::restore::{EmbeddedRestoreOptions, restore};
use self::watcher::EmbeddedWatch;
use self::writer::{StoreWriter, WriterRequest};
use crate::store::{
    Error, KeyValue, MAX_REQUEST_BYTES, RangeRequest, RangeResponse, SingleKeyTxn, Store,
    StoreResult, StoreWatch, TxnResponse,
};

/// Requests that may wait for the writer, in permits of [`BYTES_PER_PERMIT`] bytes
/// (64 MiB together).
const QUEUE_PERMITS: usize = 16 << 10;
const BYTES_PER_PERMIT: usize = 4 << 10;
/// Reads of rows that may run at the same time.
const MAX_CONCURRENT_READS: usize = 4;

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedStoreStats {
    pub revision: u64,
    /// The compaction revision: reads before it fail.
    pub compact_revision: u64,
    /// Keys in the index, deleted ones included until they are compacted.
    pub keys: usize,
    /// Bytes of recent events in memory.
    pub ring_bytes: usize,
    /// Bytes on disk; 0 in memory.
    pub disk_bytes: u64,
}

/// The embedded store. Dropping it closes it in the background; [`EmbeddedStore::close`]
/// waits for that.
#[derive(Debug)]
pub struct EmbeddedStore {
    engine: Arc<EmbeddedStoreState>,
    requests: mpsc::Sender<WriterRequest>,
    queue_permits: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
    database: Option<PathBuf>,
}

impl EmbeddedStore {
    /// Opens or creates the store in a directory. Blocks while it loads the keys.
    ///
    /// # Errors
    /// [`Error::Fatal`] when another process uses the directory, when the database is
    /// damaged or of another program, or when it cannot be read and written.
    pub fn open(directory: &Path, options: EmbeddedStoreOptions) -> StoreResult<Self> {
        let directory = database::LockedDataDirectory::lock(directory)?;
        if options.sync {
            database::rewrite_wal(&directory.database)?;
        }
        let connection = database::open(&directory.database, &options)?;
        let loaded = database::load(&connection, &options)?;
        let readers = ReadConnectionPool::File {
            database: directory.database.clone(),
            idle: Mutex::new(Vec::new()),
            gate: RwLock::new(()),
        };
        let connection = Arc::new(Mutex::new(connection));
        Self::start(connection, readers, loaded, options, Some(directory))
    }

    /// Opens a store in memory, which ends with the process.
    ///
    /// # Errors
    /// [`Error::Fatal`] when no memory or no thread is left.
    pub fn in_memory(options: EmbeddedStoreOptions) -> StoreResult<Self> {
        let connection = database::open_memory(&options)?;
        let loaded = database::load(&connection, &options)?;
        let connection = Arc::new(Mutex::new(connection));
        let readers = ReadConnectionPool::Memory(connection.clone());
        Self::start(connection, readers, loaded, options, None)
    }

    fn start(
        connection: Arc<Mutex<rusqlite::Connection>>,
        readers: ReadConnectionPool,
        loaded: database::LoadedDatabase,
        options: EmbeddedStoreOptions,
        directory: Option<database::LockedDataDirectory>,
    ) -> StoreResult<Self> {
        let shared = Arc::new(EmbeddedStoreState {
            notifier: WatchNotifier::new(loaded.index.revision()),
            index: RwLock::new(loaded.index),
            read_pool: readers,
            read_permits: Semaphore::new(MAX_CONCURRENT_READS),
            health: StoreHealthReporter::default(),
            failure: watch::Sender::new(None),
            #[cfg(test)]
            between_publications: failpoint::Failpoint::default(),
        });
        let (requests, queue) = mpsc::channel();
        let database = directory.as_ref().map(|d| d.database.clone());
        let writer = StoreWriter::new(shared.clone(), connection, queue, options, directory)?
            .with_loaded(
                loaded.superseded_rows,
                loaded.expiries,
                loaded.base_references,
            );
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run())
            .map_err(|e| Error::Fatal(format!("cannot start the writer thread: {e}")))?;
        Ok(Self {
            engine: shared,
            requests,
            queue_permits: Arc::new(Semaphore::new(QUEUE_PERMITS)),
            thread: Mutex::new(Some(thread)),
            database,
        })
    }

    /// Finishes the queued requests, ends all watches and releases the directory.
    /// Further calls fail with [`Error::Unavailable`].
    pub async fn close(&self) {
        // A closed channel means that the writer has ended.
        let _ = self.requests.send(WriterRequest::Close);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the writer thread of the store panicked");
            }
        }
    }

    /// Resolves when the engine has failed permanently (such as on a damaged file): the
    /// process should log the error and exit. Never resolves otherwise.
    pub async fn wait_for_failure(&self) -> Error {
        let mut failure = self.engine.failure.subscribe();
        if let Ok(failure) = failure.wait_for(Option::is_some).await
            && let Some(error) = failure.clone()
        {
            return error;
        }
        std::future::pending().await
    }

    /// Whether the engine can write; the receiver is notified of each change.
    pub fn health(&self) -> watch::Receiver<StoreHealth> {
        self.engine.health.subscribe()
    }

    /// The present numbers.
    pub fn stats(&self) -> EmbeddedStoreStats {
        let disk_bytes = self.database.as_deref().map_or(0, database::disk_bytes);
        let state = self.engine.index.read();
        EmbeddedStoreStats {
            revision: state.revision(),
            compact_revision: state.compact_revision(),
            keys: state.keys(),
            ring_bytes: state.ring().bytes(),
            disk_bytes,
        }
    }

    /// Sends a request to the writer and waits for the reply.
    async fn send_request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<StoreResult<T>>) -> WriterRequest,
    ) -> StoreResult<T> {
        let (reply, response) = oneshot::channel();
        let result = self.requests.send(request(reply));
        let response = match result {
            Ok(()) => response.await.ok(),
            Err(_) => None,
        };
        match response {
            Some(response) => response,
            None => Err(self.ended_error()),
        }
    }

    fn ended_error(&self) -> Error {
        let alive = self.engine.index.read().check_open();
        alive.err().unwrap_or_else(|| {
            Error::Unavailable(
                "the writer aborted the request; whether it was applied is not known".into(),
            )
        })
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn revision(&self) -> StoreResult<u64> {
        let revision = {
            let state = self.engine.index.read();
            state.check_open()?;
            state.revision()
        };
        self.engine.notifier.announce_progress(revision);
        Ok(revision)
    }

    async fn prefix_revision(&self, prefix: &str) -> StoreResult<u64> {
        self.engine.index.read().check_open()?;
        match self.engine.notifier.last_change(prefix) {
            Some(revision) => Ok(revision),
            None => self.revision().await,
        }
    }

    async fn get(&self, key: &str) -> StoreResult<Option<KeyValue>> {
        let newest = {
            let state = self.engine.index.read();
            state.check_open()?;
            state.newest(key)
        };
        match newest {
            None => Ok(None),
            Some(IndexEntry {
                key,
                revision,
                value: Some(value),
            }) => Ok(Some(KeyValue {
                key,
                value,
                mod_revision: revision,
            })),
            Some(newest) => {
                self.engine
                    .spawn_read(move |shared| shared.get(&newest.key))
                    .await
            }
        }
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let range = range.clone();
        self.engine
            .spawn_read(move |shared| shared.range(&range))
            .await
    }

    async fn commit(&self, txn: SingleKeyTxn) -> StoreResult<TxnResponse> {
        let value = match &txn.op {
            crate::SingleKeyTxnOp::Put { value, .. } => value.len(),
            crate::SingleKeyTxnOp::Delete => 0,
        };
        let bytes = txn.key.len() + value;
        if bytes > MAX_REQUEST_BYTES {
            return Err(Error::TooLarge);
        }
        let units = u32::try_from(1 + bytes / BYTES_PER_PERMIT).unwrap_or(u32::MAX);
        let closed = |_| Error::Unavailable("the queue is closed".into());
        let permit = self
            .queue_permits
            .clone()
            .acquire_many_owned(units)
            .await
            .map_err(closed)?;
        self.send_request(|reply| WriterRequest::Txn { txn, reply, permit })
            .await
    }

    async fn watch(&self, prefix: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        let shared = &self.engine;
        shared.index.read().check_open()?;
        let wake = shared
            .notifier
            .subscribe(prefix, || shared.index.read().revision());
        shared.index.read().check_readable(after)?;
        Ok(Box::new(EmbeddedWatch::new(
            shared.clone(),
            prefix,
            after,
            wake,
        )))
    }

    async fn compact(&self, revision: u64) -> StoreResult<()> {
        let current = {
            let state = self.engine.index.read();
            state.check_open()?;
            state.revision()
        };
        if revision > current {
            return Err(Error::Future {
                requested: revision,
                current,
            });
        }
        self.send_request(|reply| WriterRequest::Compact { revision, reply })
            .await
    }
}
