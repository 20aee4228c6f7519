//! A pool of read connections, so that no reader waits for the writer. It reads the
//! values of revisions that the index has, and the history for watches. Every call
//! blocks; callers use a thread that may block.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use rusqlite::{Connection, OptionalExtension, params};

use super::database::{SqlRevision, open_extra, store_error};
use super::history_row::{BASE_JOIN, VALUE_COLUMNS, read_stored};
use super::mvcc_index::IndexEntry;
use super::schema::read_value_format;
use crate::backup::BackupRecord;
use crate::store::{Error, KeyValue, StoreEvent, StoreResult};

/// Revisions that one page of history scans.
const HISTORY_PAGE_REVISIONS: u64 = 10_000;
/// Bytes after which a page of history ends.
const HISTORY_PAGE_BYTES: usize = 4 << 20;
/// Rows read in one SQLite transaction. A longer transaction would keep the WAL from
/// restarting.
const ROWS_PER_TRANSACTION: usize = 512;
/// Bytes after which a page of a snapshot ends.
const SNAPSHOT_PAGE_BYTES: usize = 4 << 20;
/// Idle connections that stay open.
const MAX_IDLE_CONNECTIONS: usize = 2;

#[derive(Debug)]
pub(super) enum ReadConnectionPool {
    File {
        database: PathBuf,
        idle: Mutex<Vec<Connection>>,
        /// Read-locked while a connection is in use.
        gate: RwLock<()>,
    },
    /// The writer's connection: a database in memory belongs to one connection.
    Memory(Arc<Mutex<Connection>>),
}

/// A page of events from the history.
#[derive(Debug)]
pub(super) struct HistoryPage {
    pub(super) events: Vec<StoreEvent>,
    /// The page includes everything up to this revision.
    pub(super) included_up_to: u64,
}

impl ReadConnectionPool {
    fn with_connection<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> StoreResult<T> {
        match self {
            Self::Memory(connection) => read(&connection.lock()).map_err(store_error),
            Self::File {
                database,
                idle,
                gate,
            } => {
                let _open = gate.read();
                let pooled = idle.lock().pop();
                let connection = match pooled {
                    Some(connection) => connection,
                    None => open_extra(database)?,
                };
                // A connection that failed is not reused.
                let value = read(&connection).map_err(store_error)?;
                let mut idle = idle.lock();
                if idle.len() < MAX_IDLE_CONNECTIONS {
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
            Self::Memory(_) => None,
        };
        self.close();
        guard
    }

    /// Reads the values. `None` when a row is missing because of a compaction.
    pub(super) fn read_values(&self, keys: Vec<IndexEntry>) -> StoreResult<Option<Vec<KeyValue>>> {
        let mut entries = Vec::with_capacity(keys.len());
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            let chunk = keys.by_ref().take(ROWS_PER_TRANSACTION);
            let complete = self.with_connection(|connection| {
                let transaction = connection.unchecked_transaction()?;
                for key in chunk {
                    let value = match &key.value {
                        Some(value) => Some(value.clone()),
                        None => read_value(&transaction, key.revision)?,
                    };
                    let Some(value) = value else {
                        return Ok(false);
                    };
                    entries.push(key.into_key_value(value));
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

    /// The version of the values.
    pub(super) fn read_format(&self) -> StoreResult<u32> {
        self.with_connection(read_value_format)
    }

    /// Reads the rows of keys with the revisions of their writes, at least one and no more
    /// than fit in [`SNAPSHOT_PAGE_BYTES`]. `None` when a row is missing because of a
    /// compaction.
    pub(super) fn read_snapshot_rows(
        &self,
        keys: Vec<(Arc<str>, u64)>,
    ) -> StoreResult<Option<Vec<BackupRecord>>> {
        self.with_connection(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let mut records = Vec::with_capacity(keys.len());
            let mut bytes = 0;
            for (key, revision) in keys {
                let Some((value, expires_at_ms)) = read_row(&transaction, revision)? else {
                    return Ok(None);
                };
                bytes += key.len() + value.len();
                records.push(BackupRecord {
                    key,
                    value,
                    mod_revision: revision,
                    expires_at_ms,
                });
                if bytes >= SNAPSHOT_PAGE_BYTES {
                    break;
                }
            }
            transaction.commit()?;
            Ok(Some(records))
        })
    }

    /// Reads a page of the events in `(after, upto]` whose keys begin with `prefix`. The
    /// caller checks afterwards that `after` was not compacted meanwhile.
    pub(super) fn read_history(
        &self,
        prefix: &str,
        after: u64,
        upto: u64,
    ) -> StoreResult<HistoryPage> {
        let upto = upto.min(after.saturating_add(HISTORY_PAGE_REVISIONS));
        self.with_connection(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let mut page = HistoryPage {
                events: Vec::new(),
                included_up_to: upto,
            };
            let mut bytes = 0;
            {
                let mut statement = transaction.prepare_cached(&format!(
                    "SELECT history.revision, history.key, history.previous, {VALUE_COLUMNS} \
                     FROM history {BASE_JOIN} \
                     WHERE history.revision > ?1 AND history.revision <= ?2 \
                     ORDER BY history.revision",
                ))?;
                let mut rows = statement.query(params![SqlRevision(after), SqlRevision(upto)])?;
                while let Some(row) = rows.next()? {
                    let key = row.get_ref(1)?.as_str()?;
                    if !key.starts_with(prefix) {
                        continue;
                    }
                    let key: Arc<str> = key.into();
                    let SqlRevision(revision) = row.get(0)?;
                    let value = read_stored(row, 3)?;
                    let previous = match row.get(2)? {
                        SqlRevision(0) => None,
                        SqlRevision(at) => read_value(&transaction, at)?.map(|value| KeyValue {
                            key: key.clone(),
                            value,
                            mod_revision: at,
                        }),
                    };
                    bytes += value.as_ref().map_or(0, Bytes::len);
                    bytes += previous.as_ref().map_or(0, |e| e.value.len());
                    page.events.push(StoreEvent {
                        key,
                        revision,
                        value,
                        previous,
                    });
                    if bytes >= HISTORY_PAGE_BYTES {
                        page.included_up_to = revision;
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
pub(super) fn read_value(
    connection: &Connection,
    revision: u64,
) -> rusqlite::Result<Option<Bytes>> {
    connection
        .prepare_cached(&format!(
            "SELECT {VALUE_COLUMNS} FROM history {BASE_JOIN} WHERE history.revision = ?1"
        ))?
        .query_row(params![SqlRevision(revision)], |row| read_stored(row, 0))
        .optional()
        .map(Option::flatten)
}

/// The value written at a revision, and when it expires.
pub(super) fn read_row(
    connection: &Connection,
    revision: u64,
) -> rusqlite::Result<Option<(Bytes, Option<i64>)>> {
    connection
        .prepare_cached(&format!(
            "SELECT history.expires, {VALUE_COLUMNS} FROM history {BASE_JOIN} \
             WHERE history.revision = ?1"
        ))?
        .query_row(params![SqlRevision(revision)], |row| {
            let expires_at_ms = row.get(0)?;
            Ok(read_stored(row, 1)?.map(|value| (value, expires_at_ms)))
        })
        .optional()
        .map(Option::flatten)
}

/// Returns the page, or [`Error::Compacted`] when a compaction has overtaken `after`.
pub(super) fn check_not_compacted(
    page: HistoryPage,
    after: u64,
    compacted: u64,
) -> StoreResult<HistoryPage> {
    if compacted > after {
        return Err(Error::Compacted { at: compacted });
    }
    Ok(page)
}
