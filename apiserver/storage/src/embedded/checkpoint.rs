//! The checkpoint thread: copies SQLite's WAL into the database file while the writer
//! goes on writing.
//!
//! The writer requests a checkpoint when it has appended enough to the WAL. When few
//! frames remain, the thread asks the writer to copy them between two batches, after
//! which the WAL restarts from its beginning. Under constant load a passive checkpoint
//! never catches up with the last frames; without the writer's help the WAL would grow
//! without bound. On a machine that gives the thread no time, the writer copies everything
//! by itself once the WAL is long.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::database::{open_extra, store_error};
use crate::store::{Error, StoreResult};

/// WAL bytes after which a checkpoint begins.
const CHECKPOINT_AFTER_BYTES: usize = 4 << 20;
/// Frames (pages) that the writer is usually asked to copy, at most.
const MAX_WRITER_FRAMES: i64 = 256;
const PASSIVE_ATTEMPTS: usize = 4;
/// Frames in the WAL (64 MiB) from which on the writer copies all that remains: it
/// writes faster than this thread can copy.
const MAX_WAL_FRAMES: i64 = 16 << 10;
/// Bytes since the last restart of the WAL after which the writer no longer waits for this
/// thread.
const MAX_WAL_BYTES: usize = 56 << 20;

#[derive(Debug)]
pub(super) struct WalCheckpointer {
    requests: SyncSender<()>,
    writer_must_finish: Arc<AtomicBool>,
    /// The failure that ended the thread. A checkpoint whose fsync failed must not be
    /// repeated: the repetition would treat pages as durable that are not.
    failure: Arc<Mutex<Option<Error>>>,
    appended_bytes: usize,
    /// Bytes appended since the WAL restarted.
    wal_bytes: usize,
    /// Held while the thread runs a checkpoint: SQLite refuses a second one meanwhile.
    running: Arc<Mutex<()>>,
    thread: JoinHandle<()>,
}

impl WalCheckpointer {
    pub(super) fn start(database: PathBuf, sync: bool) -> StoreResult<Self> {
        let connection = open_extra(&database)?;
        let synchronous = if sync { "FULL" } else { "OFF" };
        connection
            .pragma_update(None, "synchronous", synchronous)
            .map_err(store_error)?;
        let (nudge, nudged) = sync_channel(1);
        let rest = Arc::new(AtomicBool::new(false));
        let flag = rest.clone();
        let failure = Arc::new(Mutex::new(None));
        let report = failure.clone();
        let running = Arc::new(Mutex::new(()));
        let turn = running.clone();
        let thread = std::thread::Builder::new()
            .name("store-log".into())
            .spawn(move || {
                run(&connection, &nudged, &flag, &turn, &report);
            })
            .map_err(|e| Error::Fatal(format!("cannot start the checkpoint thread: {e}")))?;
        Ok(Self {
            requests: nudge,
            writer_must_finish: rest,
            failure,
            appended_bytes: 0,
            wal_bytes: 0,
            running,
            thread,
        })
    }

    /// `Err` when the thread has ended.
    pub(super) fn check_running(&self) -> StoreResult<()> {
        if let Some(error) = self.failure.lock().clone() {
            return Err(error);
        }
        if self.thread.is_finished() {
            return Err(Error::Disk(
                "the checkpoint thread of the store panicked".into(),
            ));
        }
        Ok(())
    }

    /// Counts appended bytes and, when asked to, copies the remaining frames. The writer
    /// calls it after each commit, outside of a transaction.
    pub(super) fn record_append(&mut self, bytes: usize, writer: &Connection) -> StoreResult<()> {
        self.check_running()?;
        self.wal_bytes += bytes;
        if self.writer_must_finish.load(Ordering::Acquire) || self.wal_bytes >= MAX_WAL_BYTES {
            let turn = self.running.lock();
            // The thread may have failed meanwhile.
            self.check_running()?;
            let status = checkpoint(writer, "PRAGMA wal_checkpoint(RESTART)")?;
            drop(turn);
            self.writer_must_finish.store(false, Ordering::Release);
            self.wal_bytes = match status.restarted {
                true => 0,
                // A read goes on. The next attempt may wait for it as well, so it is not the
                // next write.
                false => self.wal_bytes.min(MAX_WAL_BYTES - CHECKPOINT_AFTER_BYTES),
            };
        }
        self.appended_bytes += bytes;
        if self.appended_bytes >= CHECKPOINT_AFTER_BYTES {
            self.appended_bytes = 0;
            // A full channel holds an earlier request.
            let _ = self.requests.try_send(());
        }
        Ok(())
    }

    pub(super) fn join(self) {
        drop(self.requests);
        if self.thread.join().is_err() {
            tracing::error!("the checkpoint thread of the store panicked");
        }
    }
}

/// Serves checkpoint requests until the channel closes or the disk fails.
fn run(
    connection: &Connection,
    nudged: &Receiver<()>,
    rest: &AtomicBool,
    running: &Mutex<()>,
    failure: &Mutex<Option<Error>>,
) {
    while nudged.recv().is_ok() {
        // SQLite refuses a second checkpoint while one runs.
        if rest.load(Ordering::Acquire) {
            continue;
        }
        for _ in 0..PASSIVE_ATTEMPTS {
            let turn = running.lock();
            match checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)") {
                Ok(log) if log.remaining > MAX_WRITER_FRAMES && log.frames < MAX_WAL_FRAMES => {}
                Ok(_) => {
                    rest.store(true, Ordering::Release);
                    break;
                }
                Err(Error::NoSpace(error)) => {
                    tracing::debug!(error, "no space to checkpoint the store");
                    break;
                }
                Err(error) => {
                    // Before the turn ends, so that the writer does not repeat the checkpoint.
                    *failure.lock() = Some(error);
                    return;
                }
            }
            drop(turn);
        }
    }
}

struct WalStatus {
    frames: i64,
    /// Frames that are not yet in the database.
    remaining: i64,
    /// Whether nothing kept the checkpoint from doing all that it should.
    restarted: bool,
}

/// Runs one checkpoint. A passive one copies what it can without waiting. A restarting
/// one copies every frame, waits for the reads in flight and restarts the WAL; reads
/// that start meanwhile find everything in the database and are not waited for.
fn checkpoint(connection: &Connection, sql: &str) -> StoreResult<WalStatus> {
    let read = |row: &rusqlite::Row<'_>| {
        let busy: i64 = row.get(0)?;
        let frames: i64 = row.get(1)?;
        let moved_frames: i64 = row.get(2)?;
        Ok(WalStatus {
            frames,
            remaining: frames - moved_frames,
            restarted: busy == 0,
        })
    };
    let mut statement = connection.prepare_cached(sql).map_err(store_error)?;
    statement.query_row([], read).map_err(store_error)
}
