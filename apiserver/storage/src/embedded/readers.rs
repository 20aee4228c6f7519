//! A pool of read connections, so that no reader waits for the writer. It reads the
//! values of revisions that the index has, and the history for watches. Every call
//! blocks; callers use a thread that may block.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use rusqlite::{Connection, OptionalExtension, params};

use super::file::{Stored, failed, open_beside};
use super::state::Found;
use crate::store::{Entry, Error, Event, Result};

/// Revisions that one page of history scans.
const PAGE_REVISIONS: u64 = 10_000;
/// Bytes after which a page of history ends.
const PAGE_BYTES: usize = 4 << 20;
/// Rows read in one SQLite transaction. A longer transaction would keep the WAL from
/// restarting.
const CHUNK: usize = 512;
/// Idle connections that stay open.
const IDLE: usize = 2;

#[derive(Debug)]
pub(super) enum Readers {
    File {
        database: PathBuf,
        idle: Mutex<Vec<Connection>>,
        /// Read-locked while a connection is in use.
        gate: RwLock<()>,
    },
    /// The writer's connection: a database in memory belongs to one connection.
    Shared(Arc<Mutex<Connection>>),
}

/// A page of events from the history.
#[derive(Debug)]
pub(super) struct History {
    pub(super) events: Vec<Event>,
    /// The page includes everything up to this revision.
    pub(super) until: u64,
}

impl Readers {
    fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        match self {
            Self::Shared(connection) => read(&connection.lock()).map_err(failed),
            Self::File {
                database,
                idle,
                gate,
            } => {
                let _open = gate.read();
                let pooled = idle.lock().pop();
                let connection = match pooled {
                    Some(connection) => connection,
                    None => open_beside(database)?,
                };
                // A connection that failed is not reused.
                let value = read(&connection).map_err(failed)?;
                let mut idle = idle.lock();
                if idle.len() < IDLE {
                    idle.push(connection);
                }
                Ok(value)
            }
        }
    }

    /// Closes the idle connections.
    pub(super) fn close(&self) {
        if let Self::File { idle, .. } = self {
            idle.lock().clear();
        }
    }

    /// Waits for the reads in flight and closes all connections. None is opened while the
    /// returned guard lives.
    pub(super) fn close_all(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let guard = match self {
            Self::File { gate, .. } => Some(gate.write()),
            Self::Shared(_) => None,
        };
        self.close();
        guard
    }

    /// Reads the values. `None` when a row is missing because of a compaction.
    pub(super) fn entries(&self, found: Vec<Found>) -> Result<Option<Vec<Entry>>> {
        let mut entries = Vec::with_capacity(found.len());
        let mut found = found.into_iter().peekable();
        while found.peek().is_some() {
            let chunk = found.by_ref().take(CHUNK);
            let complete = self.with(|connection| {
                let transaction = connection.unchecked_transaction()?;
                for key in chunk {
                    let value = match &key.value {
                        Some(value) => Some(value.clone()),
                        None => value(&transaction, key.revision)?,
                    };
                    let Some(value) = value else {
                        return Ok(false);
                    };
                    entries.push(key.into_entry(value));
                }
                transaction.commit()?;
                Ok(true)
            })?;
            if !complete {
                return Ok(None);
            }
        }
        Ok(Some(entries))
    }

    /// Reads a page of the events in `(after, upto]` whose keys begin with `prefix`. The
    /// caller checks afterwards that `after` was not compacted meanwhile.
    pub(super) fn history(&self, prefix: &str, after: u64, upto: u64) -> Result<History> {
        let upto = upto.min(after.saturating_add(PAGE_REVISIONS));
        self.with(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let mut page = History {
                events: Vec::new(),
                until: upto,
            };
            let mut bytes = 0;
            {
                let mut statement = transaction.prepare_cached(
                    "SELECT revision, key, previous, value FROM history \
                     WHERE revision > ?1 AND revision <= ?2 ORDER BY revision",
                )?;
                let mut rows = statement.query(params![Stored(after), Stored(upto)])?;
                while let Some(row) = rows.next()? {
                    let key = row.get_ref(1)?.as_str()?;
                    if !key.starts_with(prefix) {
                        continue;
                    }
                    let key: Arc<str> = key.into();
                    let Stored(revision) = row.get(0)?;
                    let blob = row.get_ref(3)?.as_blob_or_null()?;
                    let value = blob.map(Bytes::copy_from_slice);
                    let previous = match row.get(2)? {
                        Stored(0) => None,
                        Stored(at) => self::value(&transaction, at)?.map(|value| Entry {
                            key: key.clone(),
                            value,
                            revision: at,
                        }),
                    };
                    bytes += value.as_ref().map_or(0, Bytes::len);
                    bytes += previous.as_ref().map_or(0, |e| e.value.len());
                    page.events.push(Event {
                        key,
                        revision,
                        value,
                        previous,
                    });
                    if bytes >= PAGE_BYTES {
                        page.until = revision;
                        break;
                    }
                }
            }
            transaction.commit()?;
            Ok(page)
        })
    }
}

/// The value written at a revision.
pub(super) fn value(connection: &Connection, revision: u64) -> rusqlite::Result<Option<Bytes>> {
    connection
        .prepare_cached("SELECT value FROM history WHERE revision = ?1")?
        .query_row(params![Stored(revision)], |row| {
            Ok(row
                .get_ref(0)?
                .as_blob_or_null()?
                .map(Bytes::copy_from_slice))
        })
        .optional()
        .map(Option::flatten)
}

/// Returns the page, or [`Error::Compacted`] when a compaction has overtaken `after`.
pub(super) fn whole(page: History, after: u64, compacted: u64) -> Result<History> {
    if compacted > after {
        return Err(Error::Compacted { at: compacted });
    }
    Ok(page)
}
