//! Stores similar values as differences from one of them, their base: chooses the base of a value,
//! adds bases, counts the rows that refer to each, and deletes a base with its last row.
//!
//! put ──[`DeltaEncoder`]──► row: delta, id of its base ──`read_stored`──► the value
//!                    └────► base: id, value
//!
//! Invariants: a base is never changed, and its id never used for another one while the process
//! runs. A base exists exactly as long as a row refers to it: it is written in the transaction of
//! its first row, and deleted in that of its last one. Only the writer thread does either. A row
//! and its base are read in one statement.

use std::collections::HashMap;

use bytes::Bytes;
use machinery::base_group::{BaseGroup, ShortestDelta, checked_delta};
use rusqlite::{Connection, OptionalExtension, params};

use super::database::SqlRevision;
use crate::delta::{BoundedCache, DeltaOptions};
use crate::encryption::is_encrypted;

/// Bytes of bases that the writer holds in memory; it reads others from the database.
const BASE_CACHE_BYTES: usize = 8 << 20;
/// Groups whose bases the writer remembers. A forgotten one begins with the base of the row that
/// is replaced.
const MAX_GROUPS: usize = 1 << 16;

/// What a row stores for a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StoredValue {
    Whole,
    Delta {
        base: i64,
        delta: Vec<u8>,
        /// The bytes of the base, where this value became one.
        added_bytes: usize,
    },
}

/// Turns values into deltas within the transactions of the writer.
#[derive(Debug)]
pub(super) struct DeltaEncoder {
    options: DeltaOptions,
    groups: BoundedCache<String, BaseGroup<i64>>,
    bases: BoundedCache<i64, Bytes>,
    /// The number of rows in the database that refer to each base.
    references: HashMap<i64, i64>,
    /// What the open transaction adds to `references`.
    pending: HashMap<i64, i64>,
    /// Grows even when a transaction is rolled back, since `bases` holds what it added.
    next_id: i64,
}

impl DeltaEncoder {
    pub(super) fn new(options: DeltaOptions) -> Self {
        Self {
            options,
            groups: BoundedCache::new(MAX_GROUPS),
            bases: BoundedCache::new(BASE_CACHE_BYTES),
            references: HashMap::new(),
            pending: HashMap::new(),
            next_id: 1,
        }
    }

    /// Replaces the state by that of a database that was loaded.
    pub(super) fn reset(&mut self, references: HashMap<i64, i64>) {
        let highest = references.keys().max().copied().unwrap_or_default();
        self.next_id = self.next_id.max(highest + 1);
        self.references = references;
        self.rollback();
    }

    /// How the row of a value stores it. Adds a base to the open transaction where no existing
    /// one is similar enough. The caller writes the row in the same transaction. `previous` is the
    /// revision of the row that it replaces.
    pub(super) fn encode(
        &mut self,
        connection: &Connection,
        key: &str,
        previous: SqlRevision,
        value: &Bytes,
    ) -> rusqlite::Result<StoredValue> {
        let Some(name) = self.options.group(key) else {
            return Ok(StoredValue::Whole);
        };
        if value.len() < self.options.minimum_bytes || is_encrypted(value) {
            return Ok(StoredValue::Whole);
        }
        if self.groups.get(&name).is_none() {
            let base = base_of_row(connection, previous)?;
            let group = BaseGroup::new(base.into_iter().collect());
            self.groups.insert(name.clone(), group, 1);
        }
        let shortest = self.shortest_delta(connection, &name, value)?;
        let accepted = shortest.filter(|(_, delta)| self.accept(&name, delta.len(), value.len()));
        let (base, delta, added_bytes) = match accepted {
            Some((base, delta)) => (base, delta, 0),
            None => {
                let Some(delta) = checked_delta(value, value) else {
                    return Ok(StoredValue::Whole);
                };
                (self.add_base(connection, value)?, delta, value.len())
            }
        };
        *self.pending.entry(base).or_default() += 1;
        if let Some(group) = self.groups.get_mut(&name) {
            group.record_use(base);
        }
        Ok(StoredValue::Delta {
            base,
            delta,
            added_bytes,
        })
    }

    fn shortest_delta(
        &mut self,
        connection: &Connection,
        name: &String,
        value: &[u8],
    ) -> rusqlite::Result<Option<(i64, Vec<u8>)>> {
        let candidates = self.groups.get(name).map(|group| group.bases().to_vec());
        let mut shortest = ShortestDelta::new(value);
        for id in candidates.unwrap_or_default() {
            if self.count(id) == 0 {
                continue;
            }
            let base = self.base(connection, id)?;
            if shortest.try_base(id, &base) {
                break;
            }
        }
        Ok(shortest.finish())
    }

    fn accept(&mut self, name: &String, delta: usize, value: usize) -> bool {
        let group = self.groups.get_mut(name);
        group.is_some_and(|group| group.accept(delta, value))
    }

    fn base(&mut self, connection: &Connection, id: i64) -> rusqlite::Result<Bytes> {
        if let Some(base) = self.bases.get(&id) {
            return Ok(base.clone());
        }
        let base = connection
            .prepare_cached("SELECT value FROM base WHERE id = ?1")?
            .query_row(params![id], |row| {
                Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_blob()?))
            })?;
        self.bases.insert(id, base.clone(), base.len());
        Ok(base)
    }

    fn add_base(&mut self, connection: &Connection, value: &Bytes) -> rusqlite::Result<i64> {
        let id = self.next_id;
        self.next_id += 1;
        connection
            .prepare_cached("INSERT INTO base (id, value) VALUES (?1, ?2)")?
            .execute(params![id, &**value])?;
        // The buffer of a request may be larger than its value.
        let base = Bytes::copy_from_slice(value);
        self.bases.insert(id, base, value.len());
        Ok(id)
    }

    /// The rows that refer to a base, with the changes of the open transaction.
    fn count(&self, id: i64) -> i64 {
        let count = |counts: &HashMap<i64, i64>| counts.get(&id).copied().unwrap_or_default();
        count(&self.references) + count(&self.pending)
    }

    /// Deletes a row, and its base if no other row refers to that.
    pub(super) fn delete_row(
        &mut self,
        connection: &Connection,
        revision: SqlRevision,
    ) -> rusqlite::Result<()> {
        let base: Option<i64> = connection
            .prepare_cached("DELETE FROM history WHERE revision = ?1 RETURNING base")?
            .query_row(params![revision], |row| row.get(0))
            .optional()?
            .flatten();
        let Some(id) = base else {
            return Ok(());
        };
        *self.pending.entry(id).or_default() -= 1;
        if self.count(id) == 0 {
            connection
                .prepare_cached("DELETE FROM base WHERE id = ?1")?
                .execute(params![id])?;
        }
        Ok(())
    }

    /// The transaction was committed.
    pub(super) fn commit(&mut self) {
        for (id, change) in self.pending.drain() {
            let count = self.references.entry(id).or_default();
            *count += change;
            if *count == 0 {
                self.references.remove(&id);
            }
        }
    }

    /// The transaction was rolled back; groups may name bases that it had added.
    pub(super) fn rollback(&mut self) {
        self.pending.clear();
        self.groups.clear();
    }
}

fn base_of_row(connection: &Connection, revision: SqlRevision) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT base FROM history WHERE revision = ?1")?
        .query_row(params![revision], |row| row.get(0))
        .optional()
        .map(Option::flatten)
}
