//! The last decisions, for whoever asks why.
//!
//! Enters: explanations, as decisions are made. Leaves: the one of a binding, while it
//! is held. Bounded: the oldest goes first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::decide::Explanation;

/// Explanations held; each is at most some 14 KiB, and much less with few clusters.
const HELD: usize = 512;

/// A shared store. Cloning shares it.
#[derive(Clone, Default)]
pub struct Decisions(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By `namespace/name` of the binding, or the name of a cluster-scoped one.
    held: HashMap<String, (u64, Arc<Explanation>)>,
    by_age: BTreeMap<u64, String>,
    turns: u64,
}

impl Decisions {
    /// The last decision about a binding, unless it is too long ago.
    pub fn get(&self, key: &str) -> Option<Arc<Explanation>> {
        let state = self.0.lock();
        state.held.get(key).map(|(_, held)| Arc::clone(held))
    }

    pub(crate) fn put(&self, key: &str, explanation: Explanation) {
        let mut state = self.0.lock();
        state.turns += 1;
        let turn = state.turns;
        state.forget(key);
        state.by_age.insert(turn, key.to_owned());
        let held = (turn, Arc::new(explanation));
        state.held.insert(key.to_owned(), held);
        while state.held.len() > HELD
            && let Some((_, oldest)) = state.by_age.pop_first()
        {
            state.held.remove(&oldest);
        }
    }

    pub(crate) fn forget(&self, key: &str) {
        self.0.lock().forget(key);
    }
}

impl State {
    fn forget(&mut self, key: &str) {
        if let Some((turn, _)) = self.held.remove(key) {
            self.by_age.remove(&turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Trace;

    #[test]
    fn the_oldest_goes_first() {
        let decisions = Decisions::default();
        let explanation = |generation| Explanation {
            generation,
            fresh: false,
            failed_terms: Vec::new(),
            trace: Trace::default(),
        };
        decisions.put("n/first", explanation(1));
        decisions.put("n/again", explanation(2));
        decisions.put("n/first", explanation(3));
        for n in 1..HELD {
            decisions.put(&format!("n/{n}"), explanation(9));
        }
        let generation = |key: &str| decisions.get(key).map(|e| e.generation);
        assert_eq!(
            (generation("n/again"), generation("n/first")),
            (None, Some(3))
        );
        decisions.forget("n/first");
        assert_eq!(generation("n/first"), None);
    }
}
