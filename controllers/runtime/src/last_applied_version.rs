//! Remembers which version of each key was applied last, so that an event that changes nothing
//! needs no work.
//!
//! An event handler may invalidate a key while a worker applies it. The worker's result then
//! rests on the state before the event, so it is not recorded: the event has enqueued the key,
//! and the next run applies it again.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use parking_lot::Mutex;

/// The last applied version of each key.
#[derive(Debug)]
pub struct LastAppliedVersionByKey<K, V>(Mutex<LastAppliedVersionByKeyInner<K, V>>);

#[derive(Debug)]
struct LastAppliedVersionByKeyInner<K, V> {
    applied: HashMap<K, V>,
    /// Keys that a worker applies, and that no event has invalidated since.
    in_progress: HashSet<K>,
}

impl<K, V> Default for LastAppliedVersionByKey<K, V> {
    fn default() -> Self {
        Self(Mutex::new(LastAppliedVersionByKeyInner {
            applied: HashMap::new(),
            in_progress: HashSet::new(),
        }))
    }
}

impl<K: Eq + Hash, V> LastAppliedVersionByKey<K, V> {
    /// The version that was applied last, unless the key was invalidated since.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.0.lock().applied.get(key).cloned()
    }

    /// Whether a version of the key is applied.
    pub fn contains<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.lock().applied.contains_key(key)
    }

    /// Whether exactly this version is applied.
    pub fn is_applied<Q: Eq + Hash + ?Sized>(&self, key: &Q, version: &V) -> bool
    where
        K: Borrow<Q>,
        V: PartialEq,
    {
        self.0.lock().applied.get(key) == Some(version)
    }

    /// A worker starts to apply the key; the queue lets one worker at a time do so.
    pub fn begin(&self, key: K) {
        self.0.lock().in_progress.insert(key);
    }

    /// The worker has applied a version, which is recorded unless an event has invalidated the
    /// key since [`Self::begin`].
    pub fn finish(&self, key: K, version: V) {
        let mut state = self.0.lock();
        if state.in_progress.remove(&key) {
            state.applied.insert(key, version);
        }
    }

    /// The key has to be applied again, even in the same version.
    pub fn invalidate<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let mut state = self.0.lock();
        state.applied.remove(key);
        state.in_progress.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum GeneratedAppliedVersionsCall {
        Begin,
        Finish(u8),
        Invalidate,
    }

    fn steps() -> impl Strategy<Value = Vec<(u8, GeneratedAppliedVersionsCall)>> {
        let step = prop_oneof![
            Just(GeneratedAppliedVersionsCall::Begin),
            (0..3u8).prop_map(GeneratedAppliedVersionsCall::Finish),
            Just(GeneratedAppliedVersionsCall::Invalidate)
        ];
        prop::collection::vec((0..2u8, step), 0..24)
    }

    /// The version that the steps of one key leave: that of the last finish which the last begin
    /// or invalidation before it allows, unless an invalidation follows.
    fn expected_version(steps: &[GeneratedAppliedVersionsCall]) -> Option<u8> {
        let end = steps
            .iter()
            .rposition(|s| matches!(s, GeneratedAppliedVersionsCall::Invalidate))
            .map_or(0, |at| at + 1);
        let (mut begun, mut version) = (false, None);
        for step in &steps[end..] {
            match step {
                GeneratedAppliedVersionsCall::Begin => begun = true,
                GeneratedAppliedVersionsCall::Finish(new) if begun => {
                    (begun, version) = (false, Some(*new))
                }
                GeneratedAppliedVersionsCall::Finish(_)
                | GeneratedAppliedVersionsCall::Invalidate => {}
            }
        }
        version
    }

    proptest! {
        #[test]
        fn only_what_no_event_invalidated_is_recorded(steps in steps()) {
            let versions = LastAppliedVersionByKey::<u8, u8>::default();
            for (key, step) in &steps {
                match step {
                    GeneratedAppliedVersionsCall::Begin => versions.begin(*key),
                    GeneratedAppliedVersionsCall::Finish(version) => versions.finish(*key, *version),
                    GeneratedAppliedVersionsCall::Invalidate => versions.invalidate(key),
                }
            }
            for key in 0..2u8 {
                let own = steps.iter().filter(|(k, _)| *k == key).map(|(_, step)| *step);
                let expected = expected_version(&own.collect::<Vec<_>>());
                prop_assert_eq!(versions.get(&key), expected);
                prop_assert_eq!(versions.contains(&key), expected.is_some());
                for version in 0..3 {
                    prop_assert_eq!(versions.is_applied(&key, &version), expected == Some(version));
                }
            }
        }
    }

    /// An event invalidates a key while a worker applies it by the state before the event.
    #[test]
    fn a_key_invalidated_while_applied_is_not_recorded() {
        let versions = LastAppliedVersionByKey::<String, u8>::default();
        versions.begin("w".into());
        versions.invalidate("w");
        versions.finish("w".into(), 1);
        assert!(versions.get("w").is_none());
        versions.begin("w".into());
        versions.finish("w".into(), 1);
        assert!(versions.get("w").is_some());
    }
}
