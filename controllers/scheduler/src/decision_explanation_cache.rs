//! Caches the last decision about each binding, so that it can be explained. Bounded: the
//! oldest decision is evicted first.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::explain::DecisionExplanation;
use crate::metrics::{DECISIONS_DROPPED, DECISIONS_HELD as FIGURE};

/// Cached explanations; each takes at most 16 KiB, and much less with few clusters.
const MAX_CACHED_DECISIONS: usize = 512;

/// A cache of explanations. Clones share it.
#[derive(Clone, Default)]
pub struct DecisionExplanationCache(Arc<Mutex<DecisionExplanationCacheState>>);

#[derive(Default)]
struct DecisionExplanationCacheState {
    /// By `namespace/name` of the binding, or the name of a cluster-scoped one.
    explanations: HashMap<String, (u64, Arc<DecisionExplanation>)>,
    by_age: BTreeMap<u64, String>,
    last_sequence: u64,
}

impl DecisionExplanationCache {
    /// The last decision about a binding, if it is still cached.
    pub fn get(&self, key: &str) -> Option<Arc<DecisionExplanation>> {
        let state = self.0.lock();
        state
            .explanations
            .get(key)
            .map(|(_, explanation)| Arc::clone(explanation))
    }

    /// Caches a decision. A decision that changed nothing does not replace the one that
    /// assigned the replicas.
    pub fn insert(&self, key: &str, mut explanation: DecisionExplanation) {
        let mut state = self.0.lock();
        if let Some((_, previous)) = state.explanations.get(key)
            && explanation.confirms(previous)
        {
            explanation = DecisionExplanation {
                generation: explanation.generation,
                ..DecisionExplanation::clone(previous)
            };
        }
        state.last_sequence += 1;
        let turn = state.last_sequence;
        state.forget(key);
        state.by_age.insert(turn, key.to_owned());
        let previous = (turn, Arc::new(explanation));
        state.explanations.insert(key.to_owned(), previous);
        while state.explanations.len() > MAX_CACHED_DECISIONS
            && let Some((_, oldest)) = state.by_age.pop_first()
        {
            state.explanations.remove(&oldest);
            DECISIONS_DROPPED.inc();
        }
        state.update_metric();
    }

    pub(crate) fn forget(&self, key: &str) {
        let mut state = self.0.lock();
        state.forget(key);
        state.update_metric();
    }

    /// Drops all decisions, because another process decides from now on.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        *state = DecisionExplanationCacheState::default();
        state.update_metric();
    }
}

impl fmt::Debug for DecisionExplanationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DecisionExplanationCache({})",
            self.0.lock().explanations.len()
        )
    }
}

impl DecisionExplanationCacheState {
    fn forget(&mut self, key: &str) {
        if let Some((turn, _)) = self.explanations.remove(key) {
            self.by_age.remove(&turn);
        }
    }

    fn update_metric(&self) {
        FIGURE.set(i64::try_from(self.explanations.len()).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{AssignmentRule, ClusterTrace, DecisionTrace};

    fn explanation(generation: i64, rule: AssignmentRule, replicas: i64) -> DecisionExplanation {
        let cluster = ClusterTrace {
            name: "m".into(),
            replicas: Some(replicas),
            ..ClusterTrace::default()
        };
        let trace = DecisionTrace {
            rule,
            clusters: vec![cluster],
            ..DecisionTrace::default()
        };
        DecisionExplanation {
            generation,
            trace,
            ..DecisionExplanation::default()
        }
    }

    #[test]
    fn the_oldest_decision_is_evicted_first() {
        let decisions = DecisionExplanationCache::default();
        let explanation = |generation| explanation(generation, AssignmentRule::ScaleUp, 1);
        decisions.insert("n/first", explanation(1));
        decisions.insert("n/again", explanation(2));
        decisions.insert("n/first", explanation(3));
        for n in 1..MAX_CACHED_DECISIONS {
            decisions.insert(&format!("n/{n}"), explanation(9));
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
        let decisions = DecisionExplanationCache::default();
        for (rule, replicas, cached_rule) in [
            (AssignmentRule::ScaleUp, 2, AssignmentRule::ScaleUp),
            (AssignmentRule::Keep, 2, AssignmentRule::ScaleUp),
            (AssignmentRule::Keep, 3, AssignmentRule::Keep),
            (AssignmentRule::Fresh, 3, AssignmentRule::Fresh),
        ] {
            let generation = replicas * 10;
            decisions.insert("n/a", explanation(generation, rule, replicas));
            let cached = decisions.get("n/a").unwrap();
            assert_eq!(
                (cached.generation, cached.trace.rule),
                (generation, cached_rule)
            );
        }
    }
}
