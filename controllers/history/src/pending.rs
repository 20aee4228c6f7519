//! Keeps the entries that are not written yet, and the templates whose last placement is
//! incomplete. Both are bounded.

use std::collections::{HashMap, HashSet};

use karmada_api::history::HistoryEntry;
use parking_lot::Mutex;

use crate::metrics::count_entry;

/// Beyond these numbers entries are dropped, and counted.
const MAX_PENDING_TEMPLATES: usize = 10_000;
const MAX_PENDING_ENTRIES: usize = 50;

/// An entry that is not written yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingEntry {
    pub(crate) entry: HistoryEntry,
    /// Whether it counts only if it completes an incomplete placement.
    pub(crate) is_scale: bool,
}

#[derive(Debug, Default)]
pub(crate) struct PendingEntries(Mutex<PendingState>);

/// By the keys of bindings.
#[derive(Debug, Default)]
struct PendingState {
    entries: HashMap<String, Vec<PendingEntry>>,
    incomplete: HashSet<String>,
    /// The policies that other ones have replaced, until the template moves.
    replaced_policies: HashMap<String, String>,
}

impl PendingEntries {
    /// Adds an entry; returns whether it has to be written.
    pub(crate) fn add(&self, key: &str, pending: PendingEntry) -> bool {
        let mut state = self.0.lock();
        let is_awaited = state.incomplete.contains(key) || state.entries.contains_key(key);
        if pending.is_scale && !is_awaited {
            return false;
        }
        let is_full = state.entries.len() >= MAX_PENDING_TEMPLATES;
        let count = state.entries.get(key).map_or(0, Vec::len);
        if count >= MAX_PENDING_ENTRIES || (is_full && count == 0) {
            count_entry(pending.entry.entry_type.as_str(), "dropped");
            return false;
        }
        let entries = state.entries.entry(key.to_owned()).or_default();
        entries.push(pending);
        true
    }

    /// The entries of a template, the oldest first.
    pub(crate) fn get(&self, key: &str) -> Vec<PendingEntry> {
        self.0.lock().entries.get(key).cloned().unwrap_or_default()
    }

    /// Removes the oldest entries of a template, which are written.
    pub(crate) fn finish(&self, key: &str, count: usize, is_incomplete: bool) {
        let mut state = self.0.lock();
        state.incomplete.remove(key);
        if is_incomplete && state.incomplete.len() < MAX_PENDING_TEMPLATES {
            state.incomplete.insert(key.to_owned());
        }
        let rest = match state.entries.get_mut(key) {
            Some(entries) => {
                entries.drain(..count.min(entries.len()));
                entries.len()
            }
            None => return,
        };
        if rest == 0 {
            state.entries.remove(key);
        }
    }

    /// Forgets a template that is gone.
    pub(crate) fn forget(&self, key: &str) {
        let mut state = self.0.lock();
        state.entries.remove(key);
        state.incomplete.remove(key);
        state.replaced_policies.remove(key);
    }

    pub(crate) fn replace_policy(&self, key: &str, former: String) {
        let mut state = self.0.lock();
        if state.replaced_policies.len() < MAX_PENDING_TEMPLATES {
            state
                .replaced_policies
                .entry(key.to_owned())
                .or_insert(former);
        }
    }

    /// The policy that was replaced since the template moved last.
    pub(crate) fn take_replaced_policy(&self, key: &str) -> Option<String> {
        self.0.lock().replaced_policies.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(reason: &str, is_scale: bool) -> PendingEntry {
        let entry = HistoryEntry {
            reason: reason.to_owned(),
            ..HistoryEntry::default()
        };
        PendingEntry { entry, is_scale }
    }

    // proves: HIS-bounded, HIS-scale
    #[test]
    fn entries_wait_in_order_and_are_bounded() {
        let all = PendingEntries::default();
        assert!(!all.add("a", pending("scale", true)));
        assert!(all.add("a", pending("one", false)) && all.add("a", pending("two", true)));
        all.finish("a", 1, true);
        assert_eq!(all.get("a"), [pending("two", true)]);
        all.finish("a", 1, true);
        assert!(all.get("a").is_empty());
        assert!(
            all.add("a", pending("scale", true)),
            "replicas have no cluster"
        );
        all.finish("a", 1, false);
        assert!(!all.add("a", pending("scale", true)));
        for _ in 0..MAX_PENDING_ENTRIES {
            assert!(all.add("b", pending("x", false)));
        }
        assert!(!all.add("b", pending("x", false)));
        for i in 1..MAX_PENDING_TEMPLATES {
            assert!(all.add(&i.to_string(), pending("x", false)));
        }
        assert!(!all.add("c", pending("x", false)));
        all.forget("b");
        assert!(all.add("c", pending("x", false)));
    }
}
