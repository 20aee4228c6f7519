//! Stores similar values as differences from one of them, their base: chooses the base of a value,
//! adds bases, counts the rows that refer to each, and deletes a base with its last row.
//!
//! put ──[`DeltaEncoder`]──► row: delta, id of its base ──`read_stored`──► the value
//!                    └────► base: id, value
//!
//! The values of keys with the same last segment, up to its first full stop, resemble each other:
//! the Works of one template have the same name in the namespaces of all clusters, and the names of
//! events begin with the object's, as do all versions of one object. Bytes are compared, and nothing
//! is parsed; encrypted values resemble nothing, and are stored as they are.
//!
//! Invariants: a base is never changed, and its id never used for another one while the process
//! runs. A base exists exactly as long as a row refers to it: it is written in the transaction of
//! its first row, and deleted in that of its last one. Only the writer thread does either. A row
//! and its base are read in one statement.

use std::collections::HashMap;

use bytes::Bytes;
use machinery::delta_codec;
use rusqlite::{Connection, OptionalExtension, params};

use super::bounded_cache::BoundedCache;
use super::database::SqlRevision;
use super::options::DeltaOptions;
use crate::encryption::is_encrypted;

/// Bytes of bases that the writer holds in memory; it reads others from the database.
const BASE_CACHE_BYTES: usize = 8 << 20;
/// Groups whose bases the writer remembers. A forgotten one begins with the base of the row that
/// is replaced.
const MAX_GROUPS: usize = 1 << 16;
/// The most bases of a group that a value is compared with: the content that clusters are at
/// and the one before, each without and with a status.
const MAX_GROUP_BASES: usize = 4;
/// The bytes of a delta that hold what is each object's own: names, uid, times.
const INTRINSIC_DELTA_BYTES: usize = 128;
/// A delta of this part of the value is good: no other base is tried.
const GOOD_DELTA_DIVISOR: usize = 8;

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

/// The bases of the values of one group.
#[derive(Debug)]
struct BaseGroup {
    /// The last used one first.
    bases: Vec<i64>,
    /// Bytes of deltas since the last base was added, beyond [`INTRINSIC_DELTA_BYTES`] of each.
    excess_bytes: usize,
}

/// Turns values into deltas within the transactions of the writer.
#[derive(Debug)]
pub(super) struct DeltaEncoder {
    options: DeltaOptions,
    groups: BoundedCache<String, BaseGroup>,
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
        let Some(name) = self.group(key) else {
            return Ok(StoredValue::Whole);
        };
        if value.len() < self.options.minimum_bytes || is_encrypted(value) {
            return Ok(StoredValue::Whole);
        }
        if self.groups.get(&name).is_none() {
            let group = BaseGroup {
                bases: base_of_row(connection, previous)?.into_iter().collect(),
                excess_bytes: 0,
            };
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
            group.bases.retain(|id| *id != base);
            group.bases.insert(0, base);
            group.bases.truncate(MAX_GROUP_BASES);
        }
        Ok(StoredValue::Delta {
            base,
            delta,
            added_bytes,
        })
    }

    /// The prefix and the name in a key, where its values are stored as deltas.
    fn group(&self, key: &str) -> Option<String> {
        let prefixes = &self.options.prefixes;
        let prefix = prefixes.iter().find(|prefix| key.starts_with(&***prefix))?;
        let segment = key[prefix.len()..].rsplit('/').next()?;
        let name = segment.split('.').next()?;
        Some(format!("{prefix}{name}"))
    }

    fn shortest_delta(
        &mut self,
        connection: &Connection,
        name: &String,
        value: &[u8],
    ) -> rusqlite::Result<Option<(i64, Vec<u8>)>> {
        let candidates = self.groups.get(name).map(|group| group.bases.clone());
        let mut shortest: Option<(i64, Vec<u8>)> = None;
        for id in candidates.unwrap_or_default() {
            if self.count(id) == 0 {
                continue;
            }
            let base = self.base(connection, id)?;
            // A small value does not keep a large base in the database.
            if base.len() > 2 * value.len() {
                continue;
            }
            let Some(delta) = checked_delta(&base, value) else {
                continue;
            };
            let length = delta.len();
            if shortest.as_ref().is_none_or(|(_, s)| length < s.len()) {
                shortest = Some((id, delta));
            }
            if length <= value.len() / GOOD_DELTA_DIVISOR {
                break;
            }
        }
        Ok(shortest)
    }

    /// Whether a delta is short enough. Otherwise its value becomes a base: when the delta saves
    /// less than half of the value, or when the deltas since the last base have cost as many
    /// bytes as a base does, which may be closer to the next values.
    fn accept(&mut self, name: &String, delta: usize, value: usize) -> bool {
        let Some(group) = self.groups.get_mut(name) else {
            return false;
        };
        group.excess_bytes += delta.saturating_sub(INTRINSIC_DELTA_BYTES);
        let accepted = delta <= value / 2 && group.excess_bytes <= value;
        if !accepted {
            group.excess_bytes = 0;
        }
        accepted
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

/// The delta, if it gives the value again: no write is acknowledged that cannot be read.
fn checked_delta(base: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let delta = delta_codec::encode(base, value);
    let decoded = delta_codec::decode(base, &delta);
    (decoded.ok().as_deref() == Some(value)).then_some(delta)
}
