//! Keys of labels, one copy of each for all objects.
//!
//! Enters: keys as they are read. Leaves: shared ones. Many objects have the same few
//! keys, and most of these are longer than what they stand before. Keys that only one
//! object has (those that tell who depends on it) make room when there are too many.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;

/// Those of the whole process.
static KNOWN: Keys = Keys::new(4096);

/// The shared copy of a key.
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
            // What nobody shares saves nothing.
            all.retain(|key| Arc::strong_count(key) > 2);
            if all.len() > self.most / 2 {
                all.clear();
            }
        }
        let key: Arc<str> = text.into();
        // Somebody else may have been faster: then there are two copies for a while.
        all.insert(Arc::clone(&key));
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_are_one_and_single_ones_make_room() {
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
