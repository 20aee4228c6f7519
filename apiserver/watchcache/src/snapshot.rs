//! Snapshots of a resource in a persistent ordered map, which is cheap to clone. A past
//! snapshot is computed from a newer one by reverting the events in between.

use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::event::{ObjectDecodeResult, WatchCacheEvent};

/// The decoded objects by key. A clone is O(1); the next write to a path that is shared
/// with a clone copies the path.
pub(crate) type ObjectMap = RedBlackTreeMapSync<Arc<str>, ObjectDecodeResult>;

/// The objects at one revision.
#[derive(Clone)]
pub(crate) struct CacheSnapshot {
    pub(crate) map: ObjectMap,
    pub(crate) revision: u64,
}

/// The entries of `[start, end)` in order.
pub(crate) fn entries<'a>(
    map: &'a ObjectMap,
    start: &'a str,
    end: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a ObjectDecodeResult)> {
    // The map panics on an inverted range.
    let end = end.max(start);
    map.range::<str, _>((Bound::Included(start), Bound::Excluded(end)))
}

/// Reverts events, newest first.
pub(crate) fn revert(map: &mut ObjectMap, newest_first: &[Arc<WatchCacheEvent>]) {
    for event in newest_first {
        match &event.previous {
            Some(slot) => map.insert_mut(Arc::clone(&event.key), slot.clone()),
            None => {
                map.remove_mut(&*event.key);
            }
        }
    }
}
