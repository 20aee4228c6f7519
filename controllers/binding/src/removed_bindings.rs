//! Remembers the bindings that were removed last.

use std::collections::{HashMap, VecDeque};

/// The maximum number of deleted bindings that are remembered.
const MAX_REMOVED_BINDINGS: usize = 10_000;

/// The ids of bindings whose finalizer was removed, by the key of the binding.
#[derive(Default)]
pub(crate) struct RemovedBindings {
    ids: HashMap<String, String>,
    order: VecDeque<String>,
}

impl RemovedBindings {
    pub(crate) fn insert(&mut self, key: String, id: String) {
        if self.ids.insert(key.clone(), id).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_REMOVED_BINDINGS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    pub(crate) fn id_of(&self, key: &str) -> Option<String> {
        self.ids.get(key).cloned()
    }
}
