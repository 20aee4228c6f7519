//! The MVCC index of the embedded engine, in memory: the revisions of each key, the ring
//! of recent events and the compaction revision. No I/O, no lock of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::ring::Ring;
use crate::store::{Entry, Error, Event, Page, Range, Result};

/// One write to a key: its revision, and whether it is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

impl Version {
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
struct Slot {
    newest: Version,
    older: Older,
}

/// Ascending. Most keys have none.
type Older = Option<Box<VecDeque<Version>>>;

impl Slot {
    fn at(&self, revision: u64) -> Option<Version> {
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
pub(super) struct Found {
    pub(super) key: Arc<str>,
    pub(super) revision: u64,
    /// `None`: the value is in the row of `revision`.
    pub(super) value: Option<Bytes>,
}

impl Found {
    pub(super) fn into_entry(self, value: Bytes) -> Entry {
        Entry {
            key: self.key,
            value,
            revision: self.revision,
        }
    }
}

/// The keys of a [`RangeRequest`]; some values are yet to be read.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) found: Vec<Found>,
    pub(super) page: Page,
}

/// A row that can be removed once `superseded_at` is compacted.
#[derive(Clone, Debug)]
pub(super) struct Garbage {
    pub(super) superseded_at: u64,
    pub(super) revision: u64,
    pub(super) key: Arc<str>,
}

#[derive(Debug)]
pub(super) struct State {
    keys: BTreeMap<Arc<str>, Slot>,
    ring: Ring,
    revision: u64,
    compacted: u64,
    /// The error with which the engine has ended.
    ended: Option<Error>,
}

impl State {
    pub(super) fn new(ring_bytes: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            ring: Ring::new(0, ring_bytes),
            revision: 0,
            compacted: 0,
            ended: None,
        }
    }

    /// Adds one row while loading, in ascending revisions, and appends the rows that it
    /// supersedes to `garbage`.
    pub(super) fn load(
        &mut self,
        key: Arc<str>,
        version: Version,
        garbage: &mut VecDeque<Garbage>,
    ) {
        self.advance(&key, version, garbage);
    }

    /// Sets the revisions after the last row was loaded.
    pub(super) fn loaded(&mut self, revision: u64, compacted: u64) {
        self.revision = revision;
        self.compacted = compacted;
        self.ring = Ring::new(revision, self.ring.limit());
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// `Err` when the engine has ended.
    pub(super) fn alive(&self) -> Result<()> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    pub(super) fn end(&mut self, why: Error) {
        self.ended.get_or_insert(why);
    }

    /// Makes durable events visible to reads and watches.
    pub(super) fn publish(&mut self, events: &[Event], garbage: &mut VecDeque<Garbage>) {
        for event in events {
            let version = Version::new(event.revision, event.value.is_none());
            self.advance(&event.key, version, garbage);
            self.revision = event.revision;
            self.ring.push(event.clone());
        }
        self.ring.evict();
    }

    fn advance(&mut self, key: &Arc<str>, version: Version, garbage: &mut VecDeque<Garbage>) {
        let mut supersede = |revision| {
            garbage.push_back(Garbage {
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
            let slot = Slot {
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
        self.compacted = self.compacted.max(revision);
    }

    /// Removes a compacted row from the index.
    pub(super) fn forget(&mut self, row: &Garbage) {
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
    pub(super) fn newest(&self, key: &str) -> Option<Found> {
        let (key, slot) = self.keys.get_key_value(key)?;
        (!slot.newest.deleted()).then(|| self.found(key, slot.newest))
    }

    /// The value is included where the ring still holds it.
    fn found(&self, key: &Arc<str>, version: Version) -> Found {
        Found {
            key: key.clone(),
            revision: version.revision(),
            value: self.ring.value(version.revision()),
        }
    }

    /// Checks that `revision` can be read: neither compacted nor in the future.
    pub(super) fn readable(&self, revision: u64) -> Result<()> {
        if revision > self.revision {
            return Err(Error::Future {
                asked: revision,
                current: self.revision,
            });
        }
        if revision < self.compacted {
            return Err(Error::Compacted { at: self.compacted });
        }
        Ok(())
    }

    pub(super) fn range(&self, range: &Range) -> Result<Keys> {
        self.alive()?;
        let at = if range.at == 0 {
            self.revision
        } else {
            range.at
        };
        self.readable(at)?;
        let mut keys = Keys {
            found: Vec::new(),
            page: Page {
                revision: at,
                ..Page::default()
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
            let Some(version) = slot.at(at).filter(|v| !v.deleted()) else {
                continue;
            };
            if range.limit > 0 && keys.found.len() == range.limit {
                keys.page.remaining += 1;
                continue;
            }
            keys.found.push(self.found(key, version));
        }
        Ok(keys)
    }
}
