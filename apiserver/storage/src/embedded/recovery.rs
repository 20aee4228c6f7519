//! Recovery of the writer after a disk failure or a panic: it discards its state in
//! memory, rewrites the WAL, reopens the database and loads it. Writes are rejected until
//! a transaction has been committed; reads go on.
//!
//! After a failed fsync Linux marks the pages clean: they can be read but are not on the
//! disk, and a later fsync that succeeds does not cover them. So the writer writes every
//! page of the WAL again before it trusts any of it. The database file needs no such care:
//! once all connections were closed, SQLite rebuilds its index of the WAL and copies all
//! frames of the WAL into the database again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use machinery::ExponentialBackoff;

use super::checkpoint::WalCheckpointer;
use super::database;
use super::fault_classification::{fault_of, panic_fault};
use super::writer::{StoreWriter, WriterRequest};
use crate::store::{Error, StoreResult};

/// The backoff between two attempts.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2));

impl StoreWriter {
    /// Returns when the engine can write again, `Err` when it never will.
    pub(super) fn recover(&mut self) -> StoreResult<()> {
        let mut backoff = BACKOFF;
        if self.closing {
            // The next opening copies the frames that are left in the WAL.
            let connection = self.connection.lock();
            database::set_checkpoint_on_close(&connection, false)?;
            return Err(Error::Unavailable("the store is closed".into()));
        }
        loop {
            let attempt = catch_unwind(AssertUnwindSafe(|| self.reopen()));
            let fault = match attempt {
                Ok(Ok(())) => {
                    self.engine.health.recover();
                    return Ok(());
                }
                Ok(Err(error)) => fault_of(&error).ok_or(error)?,
                Err(payload) => panic_fault(&*payload),
            };
            self.engine.health.fail(fault);
            self.reject_until(Instant::now() + backoff.next_delay())?;
        }
    }

    fn reopen(&mut self) -> StoreResult<()> {
        if let Some(checkpointer) = self.checkpointer.take() {
            checkpointer.join();
        }
        let connection = self.connection.clone();
        let mut connection = connection.lock();
        if let Some(directory) = &self.directory {
            // No connection may keep the index of the WAL alive, or run a checkpoint
            // when it is closed.
            let readers = self.engine.read_pool.close_all();
            database::set_checkpoint_on_close(&connection, false)?;
            *connection = database::open_memory(&self.options)?;
            if self.options.sync {
                database::rewrite_wal(&directory.database)?;
            }
            *connection = database::open(&directory.database, &self.options)?;
            database::set_checkpoint_on_close(&connection, false)?;
            drop(readers);
        } else if !connection.is_autocommit() {
            connection
                .execute_batch("ROLLBACK")
                .map_err(database::store_error)?;
        }
        let loaded = database::load(&connection, &self.options)?;
        let acknowledged = self.engine.index.read().revision();
        if loaded.index.revision() < acknowledged {
            return Err(Error::Fatal(format!(
                "the store lost committed data: it ends at revision {}, but {acknowledged} was \
                 acknowledged; restore it from a backup",
                loaded.index.revision()
            )));
        }
        database::probe_space(&connection, 0)?;
        if let Some(directory) = &self.directory {
            database::set_checkpoint_on_close(&connection, true)?;
            let database = directory.database.clone();
            self.checkpointer = Some(WalCheckpointer::start(database, self.options.sync)?);
        }
        self.install_loaded(loaded);
        Ok(())
    }

    /// Replaces the state in memory. Watches continue from their positions.
    fn install_loaded(&mut self, loaded: database::LoadedDatabase) {
        self.superseded_rows = loaded.superseded_rows;
        self.expiries = loaded.expiries;
        self.deltas.reset(loaded.base_references);
        self.stored_compaction = loaded.index.compact_revision();
        (self.no_space, self.paused_until, self.next_key_expiry) = (false, None, None);
        self.engine.notifier.reset(loaded.index.revision(), || {
            let mut state = self.engine.index.write();
            let compacted = state.compact_revision();
            *state = loaded.index;
            state.compact(compacted);
        });
    }

    /// Rejects requests with the fault; `Err` when the store is being closed.
    fn reject_until(&mut self, deadline: Instant) -> StoreResult<()> {
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            let error = || {
                let fault = self.engine.health.fault();
                fault.map_or_else(
                    || Error::Unavailable("the store recovers".into()),
                    |f| f.to_error(),
                )
            };
            match self.requests.recv_timeout(wait) {
                Ok(WriterRequest::Txn { reply, .. }) => drop(reply.send(Err(error()))),
                Ok(WriterRequest::Compact { reply, .. }) => drop(reply.send(Err(error()))),
                Ok(WriterRequest::Close) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unavailable("the store is closed".into()));
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
            }
        }
    }
}
