//! States of a resource: a persistent ordered map, cheap to keep and to walk.
//!
//! Enters: events. Leaves: runs of keys. A past state is a newer one with the
//! events in between taken back.

use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::event::{Event, Slot};

/// Key to what is stored there. Cloning is O(1); a clone makes the next write of
/// each path copy it.
pub(crate) type Map = RedBlackTreeMapSync<Arc<str>, Slot>;

/// A state and the revision at which it is true.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) map: Map,
    pub(crate) revision: u64,
}

/// Entries of `[start, end)` in order.
pub(crate) fn entries<'a>(
    map: &'a Map,
    start: &'a str,
    end: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Slot)> {
    // The map refuses an inverted range by panicking.
    let end = end.max(start);
    map.range::<str, _>((Bound::Included(start), Bound::Excluded(end)))
}

/// Takes events back, newest first.
pub(crate) fn undo(map: &mut Map, newest_first: &[Arc<Event>]) {
    for event in newest_first {
        match &event.was {
            Some(slot) => map.insert_mut(Arc::clone(&event.key), slot.clone()),
            None => {
                map.remove_mut(&*event.key);
            }
        }
    }
}
