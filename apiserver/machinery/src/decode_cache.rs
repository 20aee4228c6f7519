//! A process-wide cache of decoded objects ([`Object::decode`](crate::Object::decode)),
//! which evicts those that were not used recently.
//!
//! A decoded object takes as much memory as its bytes or more, and most objects are
//! decoded only when they change. When every object kept its decoded form, these forms
//! took a fifth of the memory.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

type DecodedValue = Arc<dyn Any + Send + Sync>;

/// The cache of this process.
pub(crate) static DECODE_CACHE: DecodeSlotEvictionQueue = DecodeSlotEvictionQueue::new(2048);

/// How many slots one insertion examines before it evicts: enough to find an unused
/// one, few enough to keep the lock short.
const MAX_SCANS_PER_INSERT: usize = 4;

/// An object that owns a [`DecodeSlot`].
pub(crate) trait DecodeSlotOwner: Send + Sync {
    fn slot(&self) -> &DecodeSlot;
}

/// The slot of one object for its decoded form.
#[derive(Default)]
pub(crate) struct DecodeSlot {
    value: Mutex<Option<DecodedValue>>,
    /// Read since the last eviction scan; the reference bit of the clock algorithm.
    referenced: AtomicBool,
}

impl DecodeSlot {
    pub(crate) fn get(&self) -> Option<DecodedValue> {
        let view = self.value.lock().clone()?;
        self.referenced.store(true, Ordering::Relaxed);
        Some(view)
    }

    /// Fills an empty slot. Returns whether it was empty.
    pub(crate) fn fill(&self, view: DecodedValue) -> bool {
        let mut slot = self.value.lock();
        let is_empty = slot.is_none();
        if is_empty {
            *slot = Some(view);
        }
        is_empty
    }

    fn clear(&self) {
        let view = self.value.lock().take();
        drop(view);
    }
}

/// The owners of filled slots, in the order in which eviction examines them. A slot that
/// was read since the last scan gets a second chance (clock algorithm).
pub(crate) struct DecodeSlotEvictionQueue {
    owners: Mutex<VecDeque<Weak<dyn DecodeSlotOwner>>>,
    capacity: usize,
}

impl DecodeSlotEvictionQueue {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self {
            owners: Mutex::new(VecDeque::new()),
            capacity,
        }
    }

    /// Registers an owner whose slot was filled, and evicts others beyond the capacity.
    pub(crate) fn insert(&self, holder: &Arc<dyn DecodeSlotOwner>) {
        let mut holders = self.owners.lock();
        holders.push_back(Arc::downgrade(holder));
        let mut evicted = Vec::new();
        let mut looks = 0;
        while holders.len() > self.capacity {
            let Some(oldest) = holders.pop_front() else {
                break;
            };
            let Some(alive) = oldest.upgrade() else {
                continue;
            };
            let used = alive.slot().referenced.swap(false, Ordering::Relaxed);
            looks += 1;
            if used && looks < MAX_SCANS_PER_INSERT {
                holders.push_back(oldest);
            } else {
                evicted.push(alive);
            }
        }
        drop(holders);
        evicted.iter().for_each(|holder| holder.slot().clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestSlotOwner(DecodeSlot);

    impl DecodeSlotOwner for TestSlotOwner {
        fn slot(&self) -> &DecodeSlot {
            &self.0
        }
    }

    fn insert_owner(cache: &DecodeSlotEvictionQueue) -> Arc<dyn DecodeSlotOwner> {
        let owner: Arc<dyn DecodeSlotOwner> = Arc::new(TestSlotOwner(DecodeSlot::default()));
        assert!(owner.slot().fill(Arc::new(1)));
        cache.insert(&owner);
        owner
    }

    #[test]
    fn unused_values_are_evicted_first() {
        let cache = DecodeSlotEvictionQueue::new(2);
        let first = insert_owner(&cache);
        let second = insert_owner(&cache);
        assert!(!second.slot().fill(Arc::new(2)), "one view each");
        assert!(first.slot().get().is_some());
        let third = insert_owner(&cache);
        assert!(second.slot().get().is_none(), "never read");
        assert!(first.slot().get().is_some() && third.slot().get().is_some());
        let all: Vec<_> = (0..2 * MAX_SCANS_PER_INSERT)
            .map(|_| insert_owner(&cache))
            .collect();
        let filled = all.iter().filter(|owner| owner.slot().get().is_some());
        assert_eq!(filled.count(), 2, "never more than the bound");
        assert!(first.slot().get().is_none() && third.slot().get().is_none());
    }
}
