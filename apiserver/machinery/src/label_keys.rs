//! Interns label keys, so that all objects share one copy of each.
//!
//! Many objects have the same few keys, and most keys are longer than their values. Keys
//! that only one object has (such as `depended-by` labels) are dropped when the table is
//! full.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;

/// The label keys of this process.
static LABEL_KEYS: LabelKeyInterner = LabelKeyInterner::new(4096);

/// Returns the shared copy of a label key.
pub(crate) fn intern_label_key(text: Box<str>) -> Arc<str> {
    LABEL_KEYS.intern(text)
}

struct LabelKeyInterner {
    keys: RwLock<BTreeSet<Arc<str>>>,
    capacity: usize,
}

impl LabelKeyInterner {
    const fn new(capacity: usize) -> Self {
        Self {
            keys: RwLock::new(BTreeSet::new()),
            capacity,
        }
    }

    fn intern(&self, text: Box<str>) -> Arc<str> {
        if let Some(known) = self.keys.read().get(&*text) {
            return Arc::clone(known);
        }
        let mut all = self.keys.write();
        if all.len() >= self.capacity {
            // A key that no second object uses saves no memory.
            all.retain(|key| Arc::strong_count(key) > 2);
            if all.len() > self.capacity / 2 {
                all.clear();
            }
        }
        let key: Arc<str> = text.into();
        // If another thread inserted the key meanwhile, two copies exist for a while.
        all.insert(Arc::clone(&key));
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_are_shared_and_unshared_keys_are_dropped() {
        let keys = LabelKeyInterner::new(4);
        let common = [keys.intern("app".into()), keys.intern("app".into())];
        assert!(Arc::ptr_eq(&common[0], &common[1]));
        let single: Vec<_> = (0..20).map(|n| keys.intern(n.to_string().into())).collect();
        assert!(
            single
                .iter()
                .enumerate()
                .all(|(n, k)| **k == *n.to_string())
        );
        assert!(keys.keys.read().len() <= 4);
        assert!(Arc::ptr_eq(&common[0], &keys.intern("app".into())));
    }
}
