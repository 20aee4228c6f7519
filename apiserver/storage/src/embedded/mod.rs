//! The embedded engine: SQLite behind one writer thread with group commit. Enters:
//! transactions. Leaves: durable entries and feeds. It touches its data directory
//! only, or nothing at all when it lives in memory.
//!
//! commit ──queue──► writer thread: compare ─► one SQLite transaction ─► publish ─► replies
//!                                                                          │
//!                    feeds ◄── ring of recent events, else rows ◄──────────┘
//!
//! The index of all keys and their revisions is in memory ([`state`]), as in etcd;
//! values are on disk, and in memory while their event is recent. What readers and
//! feeds see changes only in `Hub::publish`, after the commit: the state and the groups
//! of the hub change under one lock.

mod checkpoint;
#[cfg(test)]
mod failpoint;
#[cfg(test)]
mod fault_tests;
mod feed;
mod file;
mod health;
#[cfg(test)]
mod history_tests;
mod hub;
mod readers;
mod recovery;
mod ring;
mod state;
#[cfg(test)]
mod tests;
mod transaction;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use machinery::time::{Clock, SystemClock};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, oneshot, watch};

use self::feed::Position;
use self::health::HealthReporter;
pub use self::health::{Fault, FaultKind, Health};
use self::hub::Hub;
use self::readers::Readers;
use self::state::{Found, State};
use self::writer::{Request, Writer};
use crate::format;
use crate::store::{
    Entry, Error, Feed, MAX_REQUEST_BYTES, Outcome, Page, Range, Result, Store, Txn,
};

/// Bytes of recent events kept for feeds.
const RING_BYTES: usize = 8 << 20;
/// What may wait for the writer, in units of [`QUEUE_UNIT`] bytes (64 MiB).
const QUEUE_UNITS: usize = 16 << 10;
const QUEUE_UNIT: usize = 4 << 10;
/// Reads of rows that may run at one time.
const READS: usize = 4;

/// How an embedded engine behaves.
#[derive(Clone)]
pub struct Options {
    /// Whether a commit waits for the disk. Without, the store survives the end of
    /// the process but not a power failure: for simulated members.
    pub sync: bool,
    /// How long history stays readable at least; `None`: until [`Store::compact`].
    pub history: Option<Duration>,
    /// How often keys with a time to live are looked through.
    pub sweep: Duration,
    /// Largest size of the database in bytes; beyond it writes get
    /// [`Error::NoSpace`].
    pub quota: Option<u64>,
    /// Moves the revision forward and ends all history at opening. After a restore
    /// from a backup, clients must not see a revision a second time.
    pub skip_revisions: u64,
    /// The format version ([`crate::format`]) that the data needs at least.
    pub format: u32,
    /// Tells when keys expire.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sync: true,
            history: Some(Duration::from_secs(300)),
            sweep: Duration::from_secs(10),
            quota: None,
            skip_revisions: 0,
            format: format::BASE,
            clock: Arc::new(SystemClock),
        }
    }
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub revision: u64,
    /// Reads before this revision are refused.
    pub compacted: u64,
    /// Keys in the index, deleted ones included until they are compacted.
    pub keys: usize,
    /// Bytes of recent events in memory.
    pub ring_bytes: usize,
    /// Bytes on disk; 0 in memory.
    pub disk_bytes: u64,
}

/// What the handle, the feeds and the writer share.
#[derive(Debug)]
struct Shared {
    /// Taken for moments only, and never together with another lock inside it; the
    /// lock of the hub may be held outside it.
    state: RwLock<State>,
    hub: Hub,
    readers: Readers,
    reads: Semaphore,
    health: HealthReporter,
    /// Set once, when the engine fails for good.
    failure: watch::Sender<Option<Error>>,
    /// Between the two steps of a publication: the events are in the state, the groups
    /// of the hub have not heard of them.
    #[cfg(test)]
    between_publications: failpoint::Failpoint,
}

impl Shared {
    /// Runs a blocking read away from the asynchronous workers.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |_| Error::Unavailable("reads are closed".into());
        let _permit = self.reads.acquire().await.map_err(closed)?;
        let shared = self.clone();
        tokio::task::spawn_blocking(move || read(&shared))
            .await
            .map_err(|e| Error::Unavailable(format!("a read was broken off: {e}")))?
    }

    /// The index is of one moment, the rows are read later; when a compaction took
    /// one of them in between, begin again.
    fn page(&self, range: &Range) -> Result<Page> {
        loop {
            let keys = self.state.read().range(range)?;
            let mut page = keys.page;
            if let Some(entries) = self.readers.entries(keys.found)? {
                page.entries = entries;
                return Ok(page);
            }
            self.lost_row(page.revision)?;
        }
    }

    fn entry(&self, key: &str) -> Result<Option<Entry>> {
        loop {
            let (revision, found) = {
                let state = self.state.read();
                state.alive()?;
                (state.revision(), state.newest(key))
            };
            let Some(found) = found else {
                return Ok(None);
            };
            if let Some(mut entries) = self.readers.entries(vec![found])? {
                return Ok(entries.pop());
            }
            self.lost_row(revision)?;
        }
    }

    /// Only a compaction may take away a row that the index knew at `revision`.
    fn lost_row(&self, revision: u64) -> Result<()> {
        if self.state.read().compacted() > revision {
            return Ok(());
        }
        Err(Error::Fatal(format!(
            "the store lost a row that belongs to revision {revision}; restore it from a backup"
        )))
    }
}

/// The engine. Dropping it ends it in the background; [`Embedded::close`] waits.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    queue: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
    database: Option<PathBuf>,
}

impl Embedded {
    /// Opens or creates the store in a directory. Blocks while it reads the keys.
    ///
    /// # Errors
    /// [`Error::Fatal`] when another process uses the directory, when its content
    /// is not ours or damaged, or when it cannot be read and written.
    pub fn open(directory: &Path, options: Options) -> Result<Self> {
        let directory = file::Directory::lock(directory)?;
        if options.sync {
            file::rewrite_log(&directory.database)?;
        }
        let connection = file::open(&directory.database, &options)?;
        let loaded = file::load(&connection, &options)?;
        let readers = Readers::File {
            database: directory.database.clone(),
            idle: Mutex::new(Vec::new()),
            gate: RwLock::new(()),
        };
        let connection = Arc::new(Mutex::new(connection));
        Self::start(connection, readers, loaded, options, Some(directory))
    }

    /// A store that ends with the process.
    ///
    /// # Errors
    /// [`Error::Fatal`] when there is no memory or no thread left.
    pub fn memory(options: Options) -> Result<Self> {
        let connection = file::open_memory(&options)?;
        let loaded = file::load(&connection, &options)?;
        let connection = Arc::new(Mutex::new(connection));
        let readers = Readers::Shared(connection.clone());
        Self::start(connection, readers, loaded, options, None)
    }

    fn start(
        connection: Arc<Mutex<rusqlite::Connection>>,
        readers: Readers,
        loaded: file::Loaded,
        options: Options,
        directory: Option<file::Directory>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            hub: Hub::new(loaded.state.revision()),
            state: RwLock::new(loaded.state),
            readers,
            reads: Semaphore::new(READS),
            health: HealthReporter::default(),
            failure: watch::Sender::new(None),
            #[cfg(test)]
            between_publications: failpoint::Failpoint::default(),
        });
        let (requests, queue) = mpsc::channel();
        let database = directory.as_ref().map(|d| d.database.clone());
        let writer = Writer::new(shared.clone(), connection, queue, options, directory)?
            .with(loaded.garbage, loaded.expiries);
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run())
            .map_err(|e| Error::Fatal(format!("cannot start the writer thread: {e}")))?;
        Ok(Self {
            shared,
            requests,
            queue: Arc::new(Semaphore::new(QUEUE_UNITS)),
            thread: Mutex::new(Some(thread)),
            database,
        })
    }

    /// Finishes what is queued, ends all feeds and gives the directory back.
    /// Further calls get [`Error::Unavailable`].
    pub async fn close(&self) {
        // When nobody receives, the writer has ended already.
        let _ = self.requests.send(Request::Close);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the writer thread of the store ended badly");
            }
        }
    }

    /// Resolves when the engine has failed for good (disk error, damaged file): the
    /// process should end, saying why. Never resolves otherwise.
    pub async fn failed(&self) -> Error {
        let mut failure = self.shared.failure.subscribe();
        if let Ok(failure) = failure.wait_for(Option::is_some).await
            && let Some(error) = failure.clone()
        {
            return error;
        }
        std::future::pending().await
    }

    /// Whether the engine can write, now and whenever that changes.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// Figures of this moment.
    pub fn stats(&self) -> Stats {
        let disk_bytes = self.database.as_deref().map_or(0, file::bytes);
        let state = self.shared.state.read();
        Stats {
            revision: state.revision(),
            compacted: state.compacted(),
            keys: state.keys(),
            ring_bytes: state.ring().bytes(),
            disk_bytes,
        }
    }

    /// Hands a request to the writer and waits for the answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(request(reply));
        let answer = match sent {
            Ok(()) => answer.await.ok(),
            Err(_) => None,
        };
        match answer {
            Some(answer) => answer,
            None => Err(self.ended()),
        }
    }

    fn ended(&self) -> Error {
        let alive = self.shared.state.read().alive();
        alive.err().unwrap_or_else(|| {
            Error::Unavailable(
                "the writer broke the request off; whether it happened is not known".into(),
            )
        })
    }
}

#[async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<u64> {
        let revision = {
            let state = self.shared.state.read();
            state.alive()?;
            state.revision()
        };
        self.shared.hub.announce(revision);
        Ok(revision)
    }

    async fn revision_of(&self, prefix: &str) -> Result<u64> {
        self.shared.state.read().alive()?;
        match self.shared.hub.touched(prefix) {
            Some(revision) => Ok(revision),
            None => self.revision().await,
        }
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let found = {
            let state = self.shared.state.read();
            state.alive()?;
            state.newest(key)
        };
        match found {
            None => Ok(None),
            Some(Found {
                key,
                revision,
                value: Some(value),
            }) => Ok(Some(Entry {
                key,
                value,
                revision,
            })),
            Some(found) => {
                self.shared
                    .blocking(move |shared| shared.entry(&found.key))
                    .await
            }
        }
    }

    async fn range(&self, range: &Range) -> Result<Page> {
        let range = range.clone();
        self.shared
            .blocking(move |shared| shared.page(&range))
            .await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        let value = match &txn.op {
            crate::Op::Put { value, .. } => value.len(),
            crate::Op::Delete => 0,
        };
        let bytes = txn.key.len() + value;
        if bytes > MAX_REQUEST_BYTES {
            return Err(Error::TooLarge);
        }
        let units = u32::try_from(1 + bytes / QUEUE_UNIT).unwrap_or(u32::MAX);
        let closed = |_| Error::Unavailable("the queue is closed".into());
        let permit = self
            .queue
            .clone()
            .acquire_many_owned(units)
            .await
            .map_err(closed)?;
        self.ask(|reply| Request::Txn { txn, reply, permit }).await
    }

    async fn watch(&self, prefix: &str, after: u64) -> Result<Box<dyn Feed>> {
        let shared = &self.shared;
        shared.state.read().alive()?;
        let wake = shared
            .hub
            .register(prefix, || shared.state.read().revision());
        shared.state.read().readable(after)?;
        Ok(Box::new(Position::new(shared.clone(), prefix, after, wake)))
    }

    async fn compact(&self, revision: u64) -> Result<()> {
        let current = {
            let state = self.shared.state.read();
            state.alive()?;
            state.revision()
        };
        if revision > current {
            return Err(Error::Future {
                asked: revision,
                current,
            });
        }
        self.ask(|reply| Request::Compact { revision, reply }).await
    }
}
