//! Interns label keys, so that all objects share one copy of each.
//!
//! Many objects have the same few keys, and most keys are longer than their values. Keys
//! that only one object has (such as `depended-by` labels) are dropped when the table is
//! full.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;

/// The label keys of this process.
static KNOWN: Keys = Keys::new(4096);

/// Returns the shared copy of a label key.
pub(crate) fn key(text: Box<str>) -> Arc<str> {
    KNOWN.share(text)
}

struct Keys {
    known: RwLock<BTreeSet<Arc<str>>>,
    most: usize,
}

impl Keys {
    const fn new(most: usize) -> Self {
        Self {
            known: RwLock::new(BTreeSet::new()),
            most,
        }
    }

    fn share(&self, text: Box<str>) -> Arc<str> {
        if let Some(known) = self.known.read().get(&*text) {
            return Arc::clone(known);
        }
        let mut all = self.known.write();
        if all.len() >= self.most {
            // A key that no second object uses saves no memory.
            all.retain(|key| Arc::strong_count(key) > 2);
            if all.len() > self.most / 2 {
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
        let keys = Keys::new(4);
        let common = [keys.share("app".into()), keys.share("app".into())];
        assert!(Arc::ptr_eq(&common[0], &common[1]));
        let single: Vec<_> = (0..20).map(|n| keys.share(n.to_string().into())).collect();
        assert!(
            single
                .iter()
                .enumerate()
                .all(|(n, k)| **k == *n.to_string())
        );
        assert!(keys.known.read().len() <= 4);
        assert!(Arc::ptr_eq(&common[0], &keys.share("app".into())));
    }
}
