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

type View = Arc<dyn Any + Send + Sync>;

/// The cache of this process.
pub(crate) static KEPT: Kept = Kept::new(2048);

/// How many slots one insertion examines before it evicts: enough to find an unused
/// one, few enough to keep the lock short.
const LOOKS: usize = 4;

/// An object that owns a [`DecodeSlot`].
pub(crate) trait Holder: Send + Sync {
    fn slot(&self) -> &Slot;
}

/// The slot of one object for its decoded form.
#[derive(Default)]
pub(crate) struct Slot {
    view: Mutex<Option<View>>,
    /// Read since the last eviction scan; the reference bit of the clock algorithm.
    used: AtomicBool,
}

impl Slot {
    pub(crate) fn get(&self) -> Option<View> {
        let view = self.view.lock().clone()?;
        self.used.store(true, Ordering::Relaxed);
        Some(view)
    }

    /// Fills an empty slot. Returns whether it was empty.
    pub(crate) fn fill(&self, view: View) -> bool {
        let mut slot = self.view.lock();
        let is_empty = slot.is_none();
        if is_empty {
            *slot = Some(view);
        }
        is_empty
    }

    fn clear(&self) {
        let view = self.view.lock().take();
        drop(view);
    }
}

/// The owners of filled slots, in the order in which eviction examines them. A slot that
/// was read since the last scan gets a second chance (clock algorithm).
pub(crate) struct Kept {
    holders: Mutex<VecDeque<Weak<dyn Holder>>>,
    most: usize,
}

impl Kept {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            holders: Mutex::new(VecDeque::new()),
            most,
        }
    }

    /// Registers an owner whose slot was filled, and evicts others beyond the capacity.
    pub(crate) fn enter(&self, holder: &Arc<dyn Holder>) {
        let mut holders = self.holders.lock();
        holders.push_back(Arc::downgrade(holder));
        let mut left = Vec::new();
        let mut looks = 0;
        while holders.len() > self.most {
            let Some(oldest) = holders.pop_front() else {
                break;
            };
            let Some(alive) = oldest.upgrade() else {
                continue;
            };
            let used = alive.slot().used.swap(false, Ordering::Relaxed);
            looks += 1;
            if used && looks < LOOKS {
                holders.push_back(oldest);
            } else {
                left.push(alive);
            }
        }
        drop(holders);
        left.iter().for_each(|holder| holder.slot().clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(Slot);

    impl Holder for One {
        fn slot(&self) -> &Slot {
            &self.0
        }
    }

    fn enter(cache: &Kept) -> Arc<dyn Holder> {
        let one: Arc<dyn Holder> = Arc::new(One(Slot::default()));
        assert!(one.slot().fill(Arc::new(1)));
        cache.enter(&one);
        one
    }

    #[test]
    fn unused_values_are_evicted_first() {
        let cache = Kept::new(2);
        let first = enter(&cache);
        let second = enter(&cache);
        assert!(!second.slot().fill(Arc::new(2)), "one view each");
        assert!(first.slot().get().is_some());
        let third = enter(&cache);
        assert!(second.slot().get().is_none(), "never read");
        assert!(first.slot().get().is_some() && third.slot().get().is_some());
        let all: Vec<_> = (0..2 * LOOKS).map(|_| enter(&cache)).collect();
        let filled = all.iter().filter(|one| one.slot().get().is_some());
        assert_eq!(filled.count(), 2, "never more than the bound");
        assert!(first.slot().get().is_none() && third.slot().get().is_none());
    }
}
