//! The initial events of a watch: the existing objects, in slices.

use std::sync::Arc;

use storage::RangeRequest;

use crate::error::Error;
use crate::event::{ObjectDecodeResult, decode};
use crate::snapshot::{ObjectMap, entries};
use crate::watch_cache::WatchCache;

/// Entries copied from the map at once.
const MAP_SLICE_KEYS: usize = 128;
/// Entries read from the store at once.
const STORE_PAGE_KEYS: usize = 500;

/// An iteration over the objects at one revision.
pub(crate) struct InitialEventsReader {
    /// `None`: the objects are read from the store.
    map: Option<ObjectMap>,
    /// Whether the ring has the following events; otherwise the store's history has them.
    pub(crate) continues_on_ring: bool,
    start: String,
    end: String,
    /// 0 until the first read from the store.
    pub(crate) revision: u64,
    slice: std::vec::IntoIter<(Arc<str>, ObjectDecodeResult)>,
    exhausted: bool,
}

/// The result of [`InitialEventsReader::next`].
pub(crate) enum NextInitialEvent {
    Entry(Arc<str>, ObjectDecodeResult),
    /// The next slice must be read with [`InitialEventsReader::fetch`].
    Fetch,
    /// A slice is loaded; the caller yields before it continues.
    Pause,
    End,
}

impl InitialEventsReader {
    pub(crate) fn new(
        map: Option<ObjectMap>,
        revision: u64,
        (start, end): (String, String),
    ) -> Self {
        Self {
            continues_on_ring: map.is_some(),
            map,
            start,
            end,
            revision,
            slice: Vec::new().into_iter(),
            exhausted: false,
        }
    }

    pub(crate) fn next(&mut self, shared: &WatchCache) -> NextInitialEvent {
        if let Some((key, slot)) = self.slice.next() {
            return NextInitialEvent::Entry(key, slot);
        }
        if self.exhausted {
            return NextInitialEvent::End;
        }
        // A client so slow that the ring has passed its snapshot would keep old values in
        // memory, so it reads the rest from the store at that revision.
        if self.map.is_some() && shared.state.read().ring.floor() > self.revision {
            self.map = None;
        }
        let Some(map) = &self.map else {
            return NextInitialEvent::Fetch;
        };
        let slice: Vec<(Arc<str>, ObjectDecodeResult)> = entries(map, &self.start, &self.end)
            .take(MAP_SLICE_KEYS)
            .map(|(key, slot)| (Arc::clone(key), slot.clone()))
            .collect();
        self.load_slice(slice, MAP_SLICE_KEYS);
        NextInitialEvent::Pause
    }

    fn load_slice(&mut self, slice: Vec<(Arc<str>, ObjectDecodeResult)>, full_length: usize) {
        self.exhausted = slice.len() < full_length;
        if let Some((key, _)) = slice.last() {
            self.start = format!("{key}\0");
        }
        self.slice = slice.into_iter();
    }

    /// Reads the next page from the store. Cancel-safe.
    pub(crate) async fn fetch(&mut self, shared: &WatchCache) -> Result<(), Error> {
        let range = RangeRequest {
            start: self.start.clone(),
            end: self.end.clone(),
            limit: STORE_PAGE_KEYS,
            revision: self.revision,
        };
        let page = shared.store.range(&range).await;
        let page = page.map_err(|e| Error::from_read(e, self.revision))?;
        self.revision = page.revision;
        let slice = page.kvs.into_iter().map(|e| {
            let slot = decode(&e.key, &e.value, e.mod_revision);
            (e.key, slot)
        });
        self.load_slice(slice.collect(), STORE_PAGE_KEYS);
        Ok(())
    }
}
