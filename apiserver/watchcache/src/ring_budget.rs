//! The byte budget that the event rings of all caches share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A ring of events whose bytes the budget bounds.
pub(crate) trait EvictableRing: Send + Sync {
    /// Bytes that the ring holds.
    fn ring_bytes(&self) -> usize;

    /// Drops the oldest events; false when there are none.
    fn evict(&self) -> bool;
}

/// The byte budget of all rings. Over the limit the largest ring drops its oldest events,
/// so that a busy resource does not evict the events of others.
pub(crate) struct RingBudget {
    limit: usize,
    total: AtomicUsize,
    rings: Mutex<Vec<Weak<dyn EvictableRing>>>,
}

impl RingBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            total: AtomicUsize::new(0),
            rings: Mutex::default(),
        }
    }

    pub(crate) fn add_ring(&self, ring: Weak<dyn EvictableRing>) {
        let mut rings = self.rings.lock();
        rings.retain(|ring| ring.strong_count() > 0);
        rings.push(ring);
    }

    pub(crate) fn charge(&self, ring: &AtomicUsize, bytes: usize) {
        ring.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns bytes to the budget; `None`: all of this ring.
    pub(crate) fn release(&self, ring: &AtomicUsize, bytes: Option<usize>) {
        let bytes = match bytes {
            Some(bytes) => {
                ring.fetch_sub(bytes, Ordering::Relaxed);
                bytes
            }
            None => ring.swap(0, Ordering::Relaxed),
        };
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn trim(&self) {
        if self.total.load(Ordering::Relaxed) <= self.limit {
            return;
        }
        let rings: Vec<Arc<dyn EvictableRing>> =
            self.rings.lock().iter().filter_map(Weak::upgrade).collect();
        // Frees a little more than needed, so that not every event searches the rings.
        let target = self.limit - self.limit / 16;
        while self.total.load(Ordering::Relaxed) > target {
            let heaviest = rings.iter().max_by_key(|ring| ring.ring_bytes());
            let Some(ring) = heaviest else { return };
            if !ring.evict() {
                return;
            }
        }
    }
}
