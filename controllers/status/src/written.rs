//! Own writes that the copy of the control plane may not show yet.
//!
//! Deciding on an older copy would end in a conflict, or, when the state has gone
//! back to what the old copy says, in no write at all.

use std::collections::HashMap;
use std::hash::Hash;

use machinery::Object;
use parking_lot::Mutex;

/// Key → revision of the last own write; forgotten when the copy shows it.
pub(crate) struct Written<K>(Mutex<HashMap<K, u64>>);

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Written<K> {
    pub(crate) fn note(&self, key: &K, written: &Object) {
        self.0.lock().insert(key.clone(), written.revision());
    }

    /// Whether a copy is older than the last own write.
    pub(crate) fn is_ahead_of(&self, key: &K, copy: &Object) -> bool {
        let mut all = self.0.lock();
        let ahead = all.get(key).is_some_and(|w| *w > copy.revision());
        if !ahead {
            all.remove(key);
        }
        ahead
    }

    /// Whether a change is the echo of the last own write.
    pub(crate) fn is_echo(&self, key: &K, copy: &Object) -> bool {
        self.0.lock().get(key) == Some(&copy.revision())
    }

    pub(crate) fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }
}
