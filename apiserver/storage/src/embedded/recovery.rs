//! Recovery of the writer after a disk failure or a panic: it discards its state in
//! memory, rewrites the WAL, reopens the database and loads it. Writes are rejected until
//! a transaction has been committed; reads go on.
//!
//! After a failed fsync Linux marks the pages clean: they can be read but are not on the
//! disk, and a later fsync that succeeds does not cover them. So the writer writes every
//! page of the WAL again before it trusts any of it. The database file needs no such care:
//! once all connections were closed, SQLite rebuilds its index of the WAL and copies all
//! frames of the WAL into the database again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::checkpoint::Checkpointer;
use super::file;
use super::health::{Fault, FaultKind};
use super::writer::{Request, Writer};
use crate::store::{Error, Result};

/// The backoff between two attempts, which doubles up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The fault that an error stands for; `None` when the engine can never write again.
pub(super) fn fault_of(error: &Error) -> Option<Fault> {
    let (kind, message) = match error {
        Error::NoSpace(message) => (FaultKind::Space, message),
        Error::Disk(message) => (FaultKind::Disk, message),
        _ => return None,
    };
    let message = message.clone();
    Some(Fault { kind, message })
}

/// The fault that a panic of the writer stands for.
pub(super) fn panicked(payload: &(dyn Any + Send)) -> Fault {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Fault {
        kind: FaultKind::Writer,
        message: format!("the writer panicked: {}", text.unwrap_or("no message")),
    }
}

impl Writer {
    /// Returns when the engine can write again, `Err` when it never will.
    pub(super) fn recover(&mut self) -> Result<()> {
        let mut pause = FIRST_PAUSE;
        if self.closing {
            // The next opening copies the frames that are left in the WAL.
            let connection = self.connection.lock();
            file::set_checkpoint_on_close(&connection, false)?;
            return Err(Error::Unavailable("the store is closed".into()));
        }
        loop {
            let attempt = catch_unwind(AssertUnwindSafe(|| self.reopen()));
            let fault = match attempt {
                Ok(Ok(())) => {
                    self.shared.health.recover();
                    return Ok(());
                }
                Ok(Err(error)) => fault_of(&error).ok_or(error)?,
                Err(payload) => panicked(&*payload),
            };
            self.shared.health.fail(fault);
            self.refuse_until(Instant::now() + pause)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn reopen(&mut self) -> Result<()> {
        if let Some(checkpointer) = self.checkpointer.take() {
            checkpointer.join();
        }
        let connection = self.connection.clone();
        let mut connection = connection.lock();
        if let Some(directory) = &self.directory {
            // No connection may keep the index of the WAL alive, or run a checkpoint
            // when it is closed.
            let readers = self.shared.readers.close_all();
            file::set_checkpoint_on_close(&connection, false)?;
            *connection = file::open_memory(&self.options)?;
            if self.options.sync {
                file::rewrite_log(&directory.database)?;
            }
            *connection = file::open(&directory.database, &self.options)?;
            file::set_checkpoint_on_close(&connection, false)?;
            drop(readers);
        } else if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").map_err(file::failed)?;
        }
        let loaded = file::load(&connection, &self.options)?;
        let acknowledged = self.shared.state.read().revision();
        if loaded.state.revision() < acknowledged {
            return Err(Error::Fatal(format!(
                "the store lost committed data: it ends at revision {}, but {acknowledged} was \
                 acknowledged; restore it from a backup",
                loaded.state.revision()
            )));
        }
        file::probe(&connection, 0)?;
        if let Some(directory) = &self.directory {
            file::set_checkpoint_on_close(&connection, true)?;
            let database = directory.database.clone();
            self.checkpointer = Some(Checkpointer::start(database, self.options.sync)?);
        }
        self.resume(loaded);
        Ok(())
    }

    /// Replaces the state in memory. Watches continue from their positions.
    fn resume(&mut self, loaded: file::Loaded) {
        self.garbage = loaded.garbage;
        self.expiries = loaded.expiries;
        self.marked = loaded.state.compacted();
        (self.full, self.paused, self.sweep) = (false, None, None);
        self.shared.hub.reset(loaded.state.revision(), || {
            let mut state = self.shared.state.write();
            let compacted = state.compacted();
            *state = loaded.state;
            state.compact(compacted);
        });
    }

    /// Rejects requests with the fault; `Err` when the store is being closed.
    fn refuse_until(&mut self, until: Instant) -> Result<()> {
        loop {
            let wait = until.saturating_duration_since(Instant::now());
            let error = || {
                let fault = self.shared.health.fault();
                fault.map_or_else(
                    || Error::Unavailable("the store recovers".into()),
                    |f| f.error(),
                )
            };
            match self.requests.recv_timeout(wait) {
                Ok(Request::Txn { reply, .. }) => drop(reply.send(Err(error()))),
                Ok(Request::Compact { reply, .. }) => drop(reply.send(Err(error()))),
                Ok(Request::Close) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unavailable("the store is closed".into()));
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
            }
        }
    }
}
