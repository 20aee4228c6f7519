//! One SQLite transaction made of many of ours. Enters: transactions in the order
//! of the queue. Leaves: their outcomes and events, none of which anybody may see
//! before [`Batch::commit`] has returned.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rusqlite::{Connection, params};

use super::file::{Expiry, Stored, set_compacted};
use super::readers::value;
use super::state::{Garbage, State};
use crate::store::{Entry, Event, Op, Outcome, Txn};

/// What a batch has written.
#[derive(Default)]
pub(super) struct Written {
    pub(super) events: Vec<Event>,
    pub(super) expiries: Vec<Expiry>,
    /// A guess at what it appended to the log.
    pub(super) log_bytes: usize,
}

pub(super) struct Batch<'a> {
    connection: &'a Connection,
    state: &'a RwLock<State>,
    /// Whether SQLite's transaction is open: a batch of conflicts needs none.
    open: bool,
    revision: u64,
    /// Milliseconds since 1970.
    now: i64,
    /// The keys that this batch has changed; `None`: deleted.
    changed: HashMap<Arc<str>, Option<Entry>>,
    written: Written,
}

impl<'a> Batch<'a> {
    pub(super) fn new(connection: &'a Connection, state: &'a RwLock<State>, now: i64) -> Self {
        let revision = state.read().revision();
        Self {
            connection,
            state,
            open: false,
            revision,
            now,
            changed: HashMap::new(),
            written: Written::default(),
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

    /// Compares and, when the condition holds, writes.
    pub(super) fn apply(&mut self, txn: Txn) -> rusqlite::Result<Outcome> {
        let current = self.current(&txn.key)?;
        let found = current.as_ref().map_or(0, |e| e.revision);
        if found != txn.expected || (found == 0 && matches!(txn.op, Op::Delete)) {
            return Ok(Outcome::Conflict { current });
        }
        self.begin()?;
        // One copy of a key serves all its versions, here and in the caches.
        let known = current.as_ref().map(|entry| Arc::clone(&entry.key));
        let key = known.unwrap_or(txn.key);
        let revision = self.revision + 1;
        let (value, expires) = match txn.op {
            Op::Put { value, ttl } => (Some(value), ttl.map(|ttl| deadline(self.now, ttl))),
            Op::Delete => (None, None),
        };
        self.connection
            .prepare_cached(
                "INSERT INTO history (revision, key, previous, expires, value) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                Stored(revision),
                &*key,
                Stored(found),
                expires,
                value.as_deref()
            ])?;
        self.revision = revision;
        self.written.log_bytes += key.len() + value.as_ref().map_or(0, |v| v.len());
        if let Some(at) = expires {
            self.written.expiries.push(Expiry {
                at,
                revision,
                key: key.clone(),
            });
        }
        let entry = value.clone().map(|value| Entry {
            key: key.clone(),
            value,
            revision,
        });
        self.changed.insert(key.clone(), entry);
        self.written.events.push(Event {
            key,
            revision,
            value,
            previous: current,
        });
        Ok(Outcome::Committed { revision })
    }

    fn current(&self, key: &str) -> rusqlite::Result<Option<Entry>> {
        if let Some(entry) = self.changed.get(key) {
            return Ok(entry.clone());
        }
        // The lock is given back before SQLite is asked; only this thread changes
        // the state.
        let found = self.state.read().newest(key);
        let Some(found) = found else {
            return Ok(None);
        };
        let value = match &found.value {
            Some(value) => value.clone(),
            None => value(self.connection, found.revision)?
                .ok_or(rusqlite::Error::QueryReturnedNoRows)?,
        };
        Ok(Some(found.into_entry(value)))
    }

    /// Notes durably how far history is forgotten.
    pub(super) fn mark_compacted(&mut self, revision: u64) -> rusqlite::Result<()> {
        self.begin()?;
        set_compacted(self.connection, revision)
    }

    /// Removes rows that nobody may read any more.
    pub(super) fn remove<'g>(
        &mut self,
        rows: impl Iterator<Item = &'g Garbage>,
    ) -> rusqlite::Result<()> {
        for row in rows {
            self.begin()?;
            self.connection
                .prepare_cached("DELETE FROM history WHERE revision = ?1")?
                .execute(params![Stored(row.revision)])?;
            self.written.log_bytes += 128;
        }
        Ok(())
    }

    /// Makes the batch durable; returns whether there was anything to write.
    pub(super) fn commit(&mut self) -> rusqlite::Result<bool> {
        if self.open {
            self.connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(std::mem::take(&mut self.open))
    }

    pub(super) fn into_written(mut self) -> Written {
        std::mem::take(&mut self.written)
    }
}

/// A batch that was not committed never happened.
impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // SQLite rolls some failures back itself and then refuses to do it again.
        if self.open && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

fn deadline(now: i64, ttl: Duration) -> i64 {
    now.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}
