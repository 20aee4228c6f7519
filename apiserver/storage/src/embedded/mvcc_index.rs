//! The MVCC index of the embedded engine, in memory: the revisions of each key, the ring
//! of recent events and the compaction revision. No I/O, no lock of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::event_ring::StoreEventRing;
use crate::store::{Error, KeyValue, RangeRequest, RangeResponse, StoreEvent, StoreResult};

/// One write to a key: its revision, and whether it is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyVersion(u64);

impl KeyVersion {
    /// The bit that marks a tombstone; revisions stay below it.
    const DELETED: u64 = 1 << 63;

    pub(super) fn new(revision: u64, deleted: bool) -> Self {
        Self(revision | if deleted { Self::DELETED } else { 0 })
    }

    fn revision(self) -> u64 {
        self.0 & !Self::DELETED
    }

    fn deleted(self) -> bool {
        self.0 & Self::DELETED != 0
    }
}

/// The readable versions of one key, as etcd's keyIndex. The store has one for each key,
/// most of which are written once and never read, so it is small.
#[derive(Debug)]
struct KeyIndex {
    newest: KeyVersion,
    older: OlderKeyVersions,
}

/// Ascending. Most keys have none.
type OlderKeyVersions = Option<Box<VecDeque<KeyVersion>>>;

impl KeyIndex {
    fn version_at(&self, revision: u64) -> Option<KeyVersion> {
        if self.newest.revision() <= revision {
            return Some(self.newest);
        }
        let older = self.older.as_deref()?;
        let after = older.partition_point(|v| v.revision() <= revision);
        after.checked_sub(1).and_then(|i| older.get(i).copied())
    }
}

/// A key of the index with the revision of its value.
#[derive(Clone, Debug)]
pub(super) struct IndexEntry {
    pub(super) key: Arc<str>,
    pub(super) revision: u64,
    /// `None`: the value is in the row of `revision`.
    pub(super) value: Option<Bytes>,
}

impl IndexEntry {
    pub(super) fn into_key_value(self, value: Bytes) -> KeyValue {
        KeyValue {
            key: self.key,
            value,
            mod_revision: self.revision,
        }
    }
}

/// The keys of a [`RangeRequest`]; some values are yet to be read.
#[derive(Debug)]
pub(super) struct IndexRangeResult {
    pub(super) entries: Vec<IndexEntry>,
    pub(super) page: RangeResponse,
}

/// A row that can be removed once `superseded_at` is compacted.
#[derive(Clone, Debug)]
pub(super) struct SupersededRow {
    pub(super) superseded_at: u64,
    pub(super) revision: u64,
    pub(super) key: Arc<str>,
}

/// The revisions of every key, and the newest events, in memory.
#[derive(Debug)]
pub(super) struct MvccIndex {
    keys: BTreeMap<Arc<str>, KeyIndex>,
    ring: StoreEventRing,
    revision: u64,
    compact_revision: u64,
    /// The error with which the engine has ended.
    failure: Option<Error>,
}

impl MvccIndex {
    pub(super) fn new(ring_bytes: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            ring: StoreEventRing::new(0, ring_bytes),
            revision: 0,
            compact_revision: 0,
            failure: None,
        }
    }

    /// Adds one row while loading, in ascending revisions, and appends the rows that it
    /// supersedes to `garbage`.
    pub(super) fn load_row(
        &mut self,
        key: Arc<str>,
        version: KeyVersion,
        garbage: &mut VecDeque<SupersededRow>,
    ) {
        self.put_version(&key, version, garbage);
    }

    /// Sets the revisions after the last row was loaded.
    pub(super) fn finish_load(&mut self, revision: u64, compacted: u64) {
        self.revision = revision;
        self.compact_revision = compacted;
        self.ring = StoreEventRing::new(revision, self.ring.limit());
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn compact_revision(&self) -> u64 {
        self.compact_revision
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn ring(&self) -> &StoreEventRing {
        &self.ring
    }

    /// `Err` when the engine has ended.
    pub(super) fn check_open(&self) -> StoreResult<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn close(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Makes durable events visible to reads and watches.
    pub(super) fn publish(&mut self, events: &[StoreEvent], garbage: &mut VecDeque<SupersededRow>) {
        for event in events {
            let version = KeyVersion::new(event.revision, event.value.is_none());
            self.put_version(&event.key, version, garbage);
            self.revision = event.revision;
            self.ring.push(event.clone());
        }
        self.ring.evict();
    }

    fn put_version(
        &mut self,
        key: &Arc<str>,
        version: KeyVersion,
        garbage: &mut VecDeque<SupersededRow>,
    ) {
        let mut supersede = |revision| {
            garbage.push_back(SupersededRow {
                superseded_at: version.revision(),
                revision,
                key: key.clone(),
            });
        };
        if let Some(slot) = self.keys.get_mut(key) {
            // A tombstone is superseded by itself, see below.
            if !slot.newest.deleted() {
                supersede(slot.newest.revision());
            }
            slot.older.get_or_insert_default().push_back(slot.newest);
            slot.newest = version;
        } else {
            let slot = KeyIndex {
                newest: version,
                older: None,
            };
            self.keys.insert(key.clone(), slot);
        }
        // No read at or after its own revision needs a tombstone.
        if version.deleted() {
            supersede(version.revision());
        }
    }

    /// Sets the compaction revision: reads before it fail. The writer sets it before it
    /// removes the first row, since readers of rows check it afterwards.
    pub(super) fn compact(&mut self, revision: u64) {
        self.compact_revision = self.compact_revision.max(revision);
    }

    /// Removes a compacted row from the index.
    pub(super) fn remove_row(&mut self, row: &SupersededRow) {
        let Some(slot) = self.keys.get_mut(&row.key) else {
            return;
        };
        if let Some(older) = &mut slot.older {
            while older.front().is_some_and(|v| v.revision() <= row.revision) {
                older.pop_front();
            }
            if older.is_empty() {
                slot.older = None;
            }
        }
        if slot.newest.revision() == row.revision {
            self.keys.remove(&row.key);
        }
    }

    /// The newest version of a key, unless it is deleted.
    pub(super) fn newest(&self, key: &str) -> Option<IndexEntry> {
        let (key, slot) = self.keys.get_key_value(key)?;
        (!slot.newest.deleted()).then(|| self.indexed_key(key, slot.newest))
    }

    /// The value is included where the ring still holds it.
    fn indexed_key(&self, key: &Arc<str>, version: KeyVersion) -> IndexEntry {
        IndexEntry {
            key: key.clone(),
            revision: version.revision(),
            value: self.ring.value(version.revision()),
        }
    }

    /// Checks that `revision` can be read: neither compacted nor in the future.
    pub(super) fn check_readable(&self, revision: u64) -> StoreResult<()> {
        if revision > self.revision {
            return Err(Error::Future {
                requested: revision,
                current: self.revision,
            });
        }
        if revision < self.compact_revision {
            return Err(Error::Compacted {
                at: self.compact_revision,
            });
        }
        Ok(())
    }

    /// The keys after `after` that exist at `revision`, with the revisions of their last
    /// writes until then; at most `limit`.
    pub(super) fn keys_at(
        &self,
        after: &str,
        revision: u64,
        limit: usize,
    ) -> StoreResult<Vec<(Arc<str>, u64)>> {
        self.check_open()?;
        self.check_readable(revision)?;
        let bounds = (Bound::Excluded(after), Bound::Unbounded);
        let keys = self.keys.range::<str, _>(bounds);
        let existing = keys.filter_map(|(key, slot)| {
            let version = slot.version_at(revision).filter(|v| !v.deleted())?;
            Some((Arc::clone(key), version.revision()))
        });
        Ok(existing.take(limit).collect())
    }

    pub(super) fn range(&self, range: &RangeRequest) -> StoreResult<IndexRangeResult> {
        self.check_open()?;
        let revision = if range.revision == 0 {
            self.revision
        } else {
            range.revision
        };
        self.check_readable(revision)?;
        let mut keys = IndexRangeResult {
            entries: Vec::new(),
            page: RangeResponse {
                revision,
                ..RangeResponse::default()
            },
        };
        if range.start >= range.end {
            return Ok(keys);
        }
        let bounds = (
            Bound::Included(range.start.as_str()),
            Bound::Excluded(range.end.as_str()),
        );
        for (key, slot) in self.keys.range::<str, _>(bounds) {
            let Some(version) = slot.version_at(revision).filter(|v| !v.deleted()) else {
                continue;
            };
            if range.limit > 0 && keys.entries.len() == range.limit {
                keys.page.remaining += 1;
                continue;
            }
            keys.entries.push(self.indexed_key(key, version));
        }
        Ok(keys)
    }
}
