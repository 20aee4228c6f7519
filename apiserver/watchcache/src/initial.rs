//! The initial events of a watch: the existing objects, in slices.

use std::sync::Arc;

use storage::Range;

use crate::error::Error;
use crate::event::{Slot, decode};
use crate::shared::Shared;
use crate::snapshot::{Map, entries};

/// Entries copied from the map at once.
const SLICE: usize = 128;
/// Entries read from the store at once.
const PAGE: usize = 500;

/// An iteration over the objects at one revision.
pub(crate) struct Initial {
    /// `None`: the objects are read from the store.
    map: Option<Map>,
    /// Whether the ring has the following events; otherwise the store's history has them.
    pub(crate) live: bool,
    start: String,
    end: String,
    /// 0 until the first read from the store.
    pub(crate) revision: u64,
    slice: std::vec::IntoIter<(Arc<str>, Slot)>,
    exhausted: bool,
}

/// The result of [`InitialEvents::next`].
pub(crate) enum Found {
    Entry(Arc<str>, Slot),
    /// The next slice must be read with [`InitialEvents::fetch`].
    Fetch,
    /// A slice is loaded; the caller yields before it continues.
    Pause,
    End,
}

impl Initial {
    pub(crate) fn new(map: Option<Map>, revision: u64, (start, end): (String, String)) -> Self {
        Self {
            live: map.is_some(),
            map,
            start,
            end,
            revision,
            slice: Vec::new().into_iter(),
            exhausted: false,
        }
    }

    pub(crate) fn next(&mut self, shared: &Shared) -> Found {
        if let Some((key, slot)) = self.slice.next() {
            return Found::Entry(key, slot);
        }
        if self.exhausted {
            return Found::End;
        }
        // A client so slow that the ring has passed its snapshot would keep old values in
        // memory, so it reads the rest from the store at that revision.
        if self.map.is_some() && shared.state.read().ring.floor() > self.revision {
            self.map = None;
        }
        let Some(map) = &self.map else {
            return Found::Fetch;
        };
        let slice: Vec<(Arc<str>, Slot)> = entries(map, &self.start, &self.end)
            .take(SLICE)
            .map(|(key, slot)| (Arc::clone(key), slot.clone()))
            .collect();
        self.turn(slice, SLICE);
        Found::Pause
    }

    fn turn(&mut self, slice: Vec<(Arc<str>, Slot)>, full: usize) {
        self.exhausted = slice.len() < full;
        if let Some((key, _)) = slice.last() {
            self.start = format!("{key}\0");
        }
        self.slice = slice.into_iter();
    }

    /// Reads the next page from the store. Cancel-safe.
    pub(crate) async fn fetch(&mut self, shared: &Shared) -> Result<(), Error> {
        let range = Range {
            start: self.start.clone(),
            end: self.end.clone(),
            limit: PAGE,
            at: self.revision,
        };
        let page = shared.store.range(&range).await;
        let page = page.map_err(|e| Error::from_read(e, self.revision))?;
        self.revision = page.revision;
        let slice = page.entries.into_iter().map(|e| {
            let slot = decode(&e.key, &e.value, e.revision);
            (e.key, slot)
        });
        self.turn(slice.collect(), PAGE);
        Ok(())
    }
}
