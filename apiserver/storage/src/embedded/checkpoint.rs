//! Moves the log into the database beside the writer. Enters: a nudge when the log
//! has grown. Leaves: a word to the writer when little is left, so that it can do
//! the rest between two batches and the log begins anew.
//!
//! Under constant load a passive checkpoint never catches up with the last frames;
//! without the writer's help the log would grow for ever.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::file::{failed, open_beside};
use crate::store::{Error, Result};

/// Log bytes after which a checkpoint begins.
const NUDGE_BYTES: usize = 4 << 20;
/// Frames (pages) that the writer is asked to move at most, as a rule.
const REST: i64 = 256;
const ROUNDS: usize = 4;
/// Frames in the log (64 MiB) from which on the writer must help, whatever is left:
/// it writes faster than the log can be emptied beside it.
const MOST: i64 = 16 << 10;

#[derive(Debug)]
pub(super) struct Checkpointer {
    nudge: SyncSender<()>,
    rest: Arc<AtomicBool>,
    /// The failure after which the thread has ended. A checkpoint whose fsync failed must
    /// not be repeated: it would take its pages for durable.
    failure: Arc<Mutex<Option<Error>>>,
    written: usize,
    thread: JoinHandle<()>,
}

impl Checkpointer {
    pub(super) fn start(database: PathBuf, sync: bool) -> Result<Self> {
        let connection = open_beside(&database)?;
        let synchronous = if sync { "FULL" } else { "OFF" };
        connection
            .pragma_update(None, "synchronous", synchronous)
            .map_err(failed)?;
        let (nudge, nudged) = sync_channel(1);
        let rest = Arc::new(AtomicBool::new(false));
        let flag = rest.clone();
        let failure = Arc::new(Mutex::new(None));
        let report = failure.clone();
        let thread = std::thread::Builder::new()
            .name("store-log".into())
            .spawn(move || {
                if let Err(error) = run(&connection, &nudged, &flag) {
                    *report.lock() = Some(error);
                }
            })
            .map_err(|e| Error::Fatal(format!("cannot start the log thread: {e}")))?;
        Ok(Self {
            nudge,
            rest,
            failure,
            written: 0,
            thread,
        })
    }

    /// `Err` when the thread has ended.
    pub(super) fn alive(&self) -> Result<()> {
        if let Some(error) = self.failure.lock().clone() {
            return Err(error);
        }
        if self.thread.is_finished() {
            return Err(Error::Disk("the log thread of the store panicked".into()));
        }
        Ok(())
    }

    /// To be called by the writer after each commit, outside of a transaction.
    pub(super) fn wrote(&mut self, bytes: usize, writer: &Connection) -> Result<()> {
        self.alive()?;
        if self.rest.load(Ordering::Acquire) {
            checkpoint(writer, "PRAGMA wal_checkpoint(RESTART)")?;
            self.rest.store(false, Ordering::Release);
        }
        self.written += bytes;
        if self.written >= NUDGE_BYTES {
            self.written = 0;
            // A full channel means that it is nudged already.
            let _ = self.nudge.try_send(());
        }
        Ok(())
    }

    pub(super) fn join(self) {
        drop(self.nudge);
        if self.thread.join().is_err() {
            tracing::error!("the log thread of the store ended badly");
        }
    }
}

/// `Err` when the disk fails.
fn run(connection: &Connection, nudged: &Receiver<()>, rest: &AtomicBool) -> Result<()> {
    while nudged.recv().is_ok() {
        // Two checkpoints at a time refuse each other.
        if rest.load(Ordering::Acquire) {
            continue;
        }
        for _ in 0..ROUNDS {
            match checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)") {
                Ok(log) if log.left > REST && log.frames < MOST => {}
                Ok(_) => {
                    rest.store(true, Ordering::Release);
                    break;
                }
                Err(Error::NoSpace(error)) => {
                    tracing::debug!(error, "no space to move the log into the store");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

struct Log {
    frames: i64,
    /// Of these not yet in the database.
    left: i64,
}

/// A passive one moves what can be moved without waiting for anybody; a restarting
/// one moves all, waits for the reads under way and lets the log begin anew. Reads
/// that start meanwhile find everything in the database and are not waited for.
fn checkpoint(connection: &Connection, sql: &str) -> Result<Log> {
    let read = |row: &rusqlite::Row<'_>| {
        let frames: i64 = row.get(1)?;
        let moved: i64 = row.get(2)?;
        Ok(Log {
            frames,
            left: frames - moved,
        })
    };
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    statement.query_row([], read).map_err(failed)
}
