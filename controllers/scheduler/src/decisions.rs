//! Caches the last decision about each binding, so that it can be explained. Bounded: the
//! oldest decision is evicted first.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::explain::Explanation;
use crate::figures::{DROPPED, HELD as FIGURE};

/// Cached explanations; each takes at most 16 KiB, and much less with few clusters.
const HELD: usize = 512;

/// A cache of explanations. Clones share it.
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
    /// The last decision about a binding, if it is still cached.
    pub fn get(&self, key: &str) -> Option<Arc<Explanation>> {
        let state = self.0.lock();
        state.held.get(key).map(|(_, held)| Arc::clone(held))
    }

    /// Caches a decision. A decision that changed nothing does not replace the one that
    /// assigned the replicas.
    pub fn put(&self, key: &str, mut explanation: Explanation) {
        let mut state = self.0.lock();
        if let Some((_, held)) = state.held.get(key)
            && explanation.confirms(held)
        {
            explanation = Explanation {
                generation: explanation.generation,
                ..Explanation::clone(held)
            };
        }
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
            DROPPED.inc();
        }
        state.tell();
    }

    pub(crate) fn forget(&self, key: &str) {
        let mut state = self.0.lock();
        state.forget(key);
        state.tell();
    }

    /// Drops all decisions, because another process decides from now on.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        *state = State::default();
        state.tell();
    }
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decisions({})", self.0.lock().held.len())
    }
}

impl State {
    fn forget(&mut self, key: &str) {
        if let Some((turn, _)) = self.held.remove(key) {
            self.by_age.remove(&turn);
        }
    }

    fn tell(&self) {
        FIGURE.set(i64::try_from(self.held.len()).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{ClusterTrace, Mode, Trace};

    fn explanation(generation: i64, rule: Mode, replicas: i64) -> Explanation {
        let cluster = ClusterTrace {
            name: "m".into(),
            replicas: Some(replicas),
            ..ClusterTrace::default()
        };
        let trace = Trace {
            rule,
            clusters: vec![cluster],
            ..Trace::default()
        };
        Explanation {
            generation,
            trace,
            ..Explanation::default()
        }
    }

    #[test]
    fn the_oldest_decision_is_evicted_first() {
        let decisions = Decisions::default();
        let explanation = |generation| explanation(generation, Mode::ScaleUp, 1);
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
        assert!(generation("n/9").is_some());
        decisions.clear();
        assert_eq!(generation("n/9"), None);
    }

    #[test]
    fn a_decision_that_moved_replicas_outlives_one_that_kept_them() {
        let decisions = Decisions::default();
        for (rule, replicas, cached_rule) in [
            (Mode::ScaleUp, 2, Mode::ScaleUp),
            (Mode::Keep, 2, Mode::ScaleUp),
            (Mode::Keep, 3, Mode::Keep),
            (Mode::Fresh, 3, Mode::Fresh),
        ] {
            let generation = replicas * 10;
            decisions.put("n/a", explanation(generation, rule, replicas));
            let held = decisions.get("n/a").unwrap();
            assert_eq!(
                (held.generation, held.trace.rule),
                (generation, cached_rule)
            );
        }
    }
}
