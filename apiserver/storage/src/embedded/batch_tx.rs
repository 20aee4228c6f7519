//! One SQLite transaction that applies many store transactions, as etcd's batchTx. The
//! writer publishes their responses and events only after [`BatchTx::commit`] has
//! returned.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rusqlite::Connection;

use super::database::{KeyExpiry, SqlRevision, set_compacted};
use super::delta_encoder::DeltaEncoder;
use super::history_row::HistoryRow;
use super::mvcc_index::{MvccIndex, SupersededRow};
use super::read_pool::read_value;
use crate::store::{KeyValue, SingleKeyTxn, SingleKeyTxnOp, StoreEvent, TxnResponse};

/// The changes that a batch has written.
#[derive(Default)]
pub(super) struct BatchChanges {
    pub(super) events: Vec<StoreEvent>,
    pub(super) expiries: Vec<KeyExpiry>,
    /// An estimate of the bytes that it appended to the WAL.
    pub(super) wal_bytes: usize,
}

/// The SQLite transaction of one batch of writes.
pub(super) struct BatchTx<'a> {
    connection: &'a Connection,
    index: &'a RwLock<MvccIndex>,
    deltas: &'a mut DeltaEncoder,
    /// Whether the SQLite transaction is open: a batch of conflicts opens none.
    open: bool,
    revision: u64,
    /// Milliseconds since 1970.
    now: i64,
    /// The keys that this batch has changed; `None` for a deleted one.
    changed: HashMap<Arc<str>, Option<KeyValue>>,
    changes: BatchChanges,
}

impl<'a> BatchTx<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        index: &'a RwLock<MvccIndex>,
        deltas: &'a mut DeltaEncoder,
        now: i64,
    ) -> Self {
        let revision = index.read().revision();
        Self {
            connection,
            index,
            deltas,
            open: false,
            revision,
            now,
            changed: HashMap::new(),
            changes: BatchChanges::default(),
        }
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        if !self.open {
            self.connection
                .prepare_cached("BEGIN IMMEDIATE")?
                .execute([])?;
            self.open = true;
        }
        Ok(())
    }

    /// Compares the revision of the key and, when it is the expected one, writes.
    pub(super) fn apply(&mut self, txn: SingleKeyTxn) -> rusqlite::Result<TxnResponse> {
        let current = self.current(&txn.key)?;
        let actual = current.as_ref().map_or(0, |e| e.mod_revision);
        if actual != txn.expected || (actual == 0 && matches!(txn.op, SingleKeyTxnOp::Delete)) {
            return Ok(TxnResponse::Conflict { current });
        }
        self.begin()?;
        // All versions of a key share one string, here and in the caches.
        let existing_key = current.as_ref().map(|entry| Arc::clone(&entry.key));
        let key = existing_key.unwrap_or(txn.key);
        let revision = self.revision + 1;
        let (value, expires) = match txn.op {
            SingleKeyTxnOp::Put { value, ttl } => {
                (Some(value), ttl.map(|ttl| deadline(self.now, ttl)))
            }
            SingleKeyTxnOp::Delete => (None, None),
        };
        let row = HistoryRow {
            revision,
            key: &key,
            previous: actual,
            expires,
            value: value.as_ref(),
        };
        let stored_bytes = row.insert(self.connection, self.deltas)?;
        self.changes.wal_bytes += key.len() + stored_bytes;
        self.revision = revision;
        if let Some(at) = expires {
            self.changes.expiries.push(KeyExpiry {
                expires_at_ms: at,
                revision,
                key: key.clone(),
            });
        }
        let entry = value.clone().map(|value| KeyValue {
            key: key.clone(),
            value,
            mod_revision: revision,
        });
        self.changed.insert(key.clone(), entry);
        self.changes.events.push(StoreEvent {
            key,
            revision,
            value,
            previous: current,
        });
        Ok(TxnResponse::Committed { revision })
    }

    fn current(&self, key: &str) -> rusqlite::Result<Option<KeyValue>> {
        if let Some(entry) = self.changed.get(key) {
            return Ok(entry.clone());
        }
        // The lock is released before the query; only this thread changes the index.
        let newest = self.index.read().newest(key);
        let Some(newest) = newest else {
            return Ok(None);
        };
        let value = match &newest.value {
            Some(value) => value.clone(),
            None => read_value(self.connection, newest.revision)?
                .ok_or(rusqlite::Error::QueryReturnedNoRows)?,
        };
        Ok(Some(newest.into_key_value(value)))
    }

    /// Stores the compaction revision.
    pub(super) fn mark_compacted(&mut self, revision: u64) -> rusqlite::Result<()> {
        self.begin()?;
        set_compacted(self.connection, revision)
    }

    /// Deletes compacted rows.
    pub(super) fn remove<'g>(
        &mut self,
        rows: impl Iterator<Item = &'g SupersededRow>,
    ) -> rusqlite::Result<()> {
        for row in rows {
            self.begin()?;
            self.deltas
                .delete_row(self.connection, SqlRevision(row.revision))?;
            self.changes.wal_bytes += 128;
        }
        Ok(())
    }

    /// Makes the batch durable. Returns whether it wrote anything.
    pub(super) fn commit(&mut self) -> rusqlite::Result<bool> {
        if self.open {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
            self.deltas.commit();
        }
        Ok(std::mem::take(&mut self.open))
    }

    pub(super) fn into_changes(mut self) -> BatchChanges {
        std::mem::take(&mut self.changes)
    }
}

/// Rolls back a batch that was not committed.
impl Drop for BatchTx<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        self.deltas.rollback();
        // After some failures SQLite has rolled back by itself, and ROLLBACK would fail.
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

fn deadline(now: i64, ttl: Duration) -> i64 {
    now.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}
