//! Which typed views are kept beside their objects.
//!
//! Enters: views as they are parsed. Leaves: the same ones again, for as long as they
//! are among those that were asked for lately. A view weighs as much as its object's
//! bytes or more, and most objects are looked at only when they change: kept with every
//! object, views were a fifth of the memory.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

type View = Arc<dyn Any + Send + Sync>;

/// Those of the whole process.
pub(crate) static KEPT: Kept = Kept::new(2048);

/// Holders that are looked at for each one that enters: enough that room is found, few
/// enough that nobody waits for it.
const LOOKS: usize = 4;

/// What has a place for a view.
pub(crate) trait Holder: Send + Sync {
    fn slot(&self) -> &Slot;
}

/// A place for one view.
#[derive(Default)]
pub(crate) struct Slot {
    view: Mutex<Option<View>>,
    /// Asked for since it was looked at last.
    used: AtomicBool,
}

impl Slot {
    pub(crate) fn get(&self) -> Option<View> {
        let view = self.view.lock().clone()?;
        self.used.store(true, Ordering::Relaxed);
        Some(view)
    }

    /// Puts a view where there is none; tells whether there was none.
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

/// The holders that have a view, in the order in which they are looked at when there are
/// too many: one that was asked for meanwhile stays (the clock algorithm).
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

    /// Notes a holder whose slot was filled.
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

    fn enter(kept: &Kept) -> Arc<dyn Holder> {
        let one: Arc<dyn Holder> = Arc::new(One(Slot::default()));
        assert!(one.slot().fill(Arc::new(1)));
        kept.enter(&one);
        one
    }

    #[test]
    fn what_nobody_asks_for_goes_first() {
        let kept = Kept::new(2);
        let first = enter(&kept);
        let second = enter(&kept);
        assert!(!second.slot().fill(Arc::new(2)), "one view each");
        assert!(first.slot().get().is_some());
        let third = enter(&kept);
        assert!(second.slot().get().is_none(), "asked for never");
        assert!(first.slot().get().is_some() && third.slot().get().is_some());
        let all: Vec<_> = (0..2 * LOOKS).map(|_| enter(&kept)).collect();
        let there = all.iter().filter(|one| one.slot().get().is_some());
        assert_eq!(there.count(), 2, "never more than the bound");
        assert!(first.slot().get().is_none() && third.slot().get().is_none());
    }
}
