//! Remembers from which version of its template and of its policy each binding was made
//! last, so that an event that changes neither of them costs nothing.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::templates::Key;

/// The versions that a binding was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AppliedPolicy {
    /// The fingerprint of the template without its status.
    pub(super) template: u64,
    pub(super) policy_uid: String,
    pub(super) policy_generation: i64,
}

/// The last applied policy of each template.
///
/// An event handler may invalidate a template while a worker makes its binding. What that
/// worker made then rests on what was true before the event, so its version is not
/// remembered: the event has put the template into the queue, and the next run makes the
/// binding anew.
#[derive(Default)]
pub(super) struct AppliedPolicies(Mutex<State>);

#[derive(Default)]
struct State {
    applied: HashMap<Key, AppliedPolicy>,
    /// Templates whose binding is being made, and that no event has invalidated since.
    in_progress: HashSet<Key>,
}

impl AppliedPolicies {
    /// Whether the binding of a template was made from these versions.
    pub(super) fn is_current(&self, key: &Key, versions: &AppliedPolicy) -> bool {
        self.0.lock().applied.get(key) == Some(versions)
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.0.lock().applied.contains_key(key)
    }

    /// A worker begins to make the binding; the queue lets one worker at a time do so.
    pub(super) fn begin(&self, key: &Key) {
        self.0.lock().in_progress.insert(key.clone());
    }

    /// The worker has made the binding; its versions are remembered unless an event has
    /// invalidated the template meanwhile.
    pub(super) fn finish(&self, key: &Key, versions: AppliedPolicy) {
        let mut state = self.0.lock();
        if state.in_progress.remove(key) {
            state.applied.insert(key.clone(), versions);
        }
    }

    /// The binding has to be made anew, also when its template and policy stay the same.
    pub(super) fn invalidate(&self, key: &Key) {
        let mut state = self.0.lock();
        state.applied.remove(key);
        state.in_progress.remove(key);
    }
}
