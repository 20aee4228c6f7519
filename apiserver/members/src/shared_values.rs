//! Keeps one copy of equal values that many objects refer to, such as the requests of all pods of a
//! workload.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use ahash::AHashSet;

/// Values below this number are not looked through for those that nothing refers to any more.
const MIN_SWEEP: usize = 1024;

/// The values that are in use, and at most as many that are not.
pub(crate) struct SharedValues<T: ?Sized> {
    values: AHashSet<Arc<T>>,
    next_sweep: usize,
}

impl<T: ?Sized + Eq + Hash> Default for SharedValues<T> {
    fn default() -> Self {
        Self {
            values: AHashSet::new(),
            next_sweep: MIN_SWEEP,
        }
    }
}

impl<T: ?Sized + Eq + Hash> SharedValues<T> {
    /// The copy that is equal to a value; the value itself if it is the first.
    pub(crate) fn share<V: Borrow<T> + Into<Arc<T>>>(&mut self, value: V) -> Arc<T> {
        if let Some(known) = self.values.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.next_sweep {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.next_sweep = MIN_SWEEP.max(2 * self.values.len());
        }
        let shared: Arc<T> = value.into();
        self.values.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut names = SharedValues::<str>::default();
        let first = names.share("a");
        assert!(Arc::ptr_eq(&first, &names.share("a")));
        assert!(!Arc::ptr_eq(&first, &names.share("b")));
        for n in 0..10 * MIN_SWEEP {
            names.share(n.to_string());
        }
        assert!(names.values.len() <= MIN_SWEEP);
        assert!(Arc::ptr_eq(&first, &names.share("a")));
    }
}
