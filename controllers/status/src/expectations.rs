//! Remembers the controllers' own writes until the informers show them.
//!
//! Reconciling an older copy would cause a conflict, or no write at all if the state has
//! returned to what the old copy says. Changes shortly after a write are batched: several
//! clusters often report within a few milliseconds.

use std::hash::Hash;
use std::time::Duration;

use flotilla_runtime::ShardedMap;
use machinery::Object;
use tokio::time::Instant;

/// Minimum time between two writes of one status; the first is never delayed.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(20);

struct ExpectedWrite {
    revision: u64,
    written_at: Instant,
    /// A reconciliation waits until the informer shows the write.
    awaited: bool,
}

/// The last own write of each key, until the key is forgotten.
pub(crate) struct StatusExpectations<K>(ShardedMap<K, ExpectedWrite>);

/// Whether a key can be reconciled now.
pub(crate) enum ReconcileReadiness {
    /// Reconcile this copy.
    Ready(Object),
    /// The object does not exist.
    Gone,
    /// Try again after this time.
    After(Duration),
    /// Wait until [`StatusExpectations::satisfy`] returns true.
    Awaited,
}

impl<K> Default for StatusExpectations<K> {
    fn default() -> Self {
        Self(ShardedMap::default())
    }
}

impl<K: Clone + Eq + Hash> StatusExpectations<K> {
    /// Records an own write. `look` reads the informer's copy of the object. If there is none,
    /// the handler that called [`Self::forget`] was faster than the response to the write, and
    /// nothing is recorded, since nobody would forget it later.
    pub(crate) fn expect(&self, key: &K, written: &Object, look: impl FnOnce() -> Option<Object>) {
        let mut all = self.0.lock(key);
        if look().is_none() {
            return;
        }
        let entry = ExpectedWrite {
            revision: written.revision(),
            written_at: Instant::now(),
            awaited: false,
        };
        all.insert(key.clone(), entry);
    }

    /// Checks whether a key can be reconciled. `look` reads the informer's copy; no change of
    /// it is missed, because handlers call [`Self::satisfy`] after the copy was changed.
    pub(crate) fn check(
        &self,
        key: &K,
        look: impl FnOnce() -> Option<Object>,
    ) -> ReconcileReadiness {
        let mut all = self.0.lock(key);
        let Some(copy) = look() else {
            return ReconcileReadiness::Gone;
        };
        let Some(entry) = all.get_mut(key) else {
            return ReconcileReadiness::Ready(copy);
        };
        let rest = MIN_WRITE_INTERVAL.saturating_sub(entry.written_at.elapsed());
        if !rest.is_zero() {
            ReconcileReadiness::After(rest)
        } else if entry.revision > copy.revision() {
            entry.awaited = true;
            ReconcileReadiness::Awaited
        } else {
            ReconcileReadiness::Ready(copy)
        }
    }

    /// Whether a new copy shows a write that a reconciliation waits for.
    pub(crate) fn satisfy(&self, key: &K, copy: &Object) -> bool {
        let mut all = self.0.lock(key);
        let shown = all.get_mut(key).filter(|e| e.revision <= copy.revision());
        shown.is_some_and(|entry| std::mem::take(&mut entry.awaited))
    }

    /// Whether a copy is older than the last own write.
    pub(crate) fn is_ahead_of(&self, key: &K, copy: &Object) -> bool {
        let all = self.0.lock(key);
        all.get(key).is_some_and(|e| e.revision > copy.revision())
    }

    /// Whether a copy is the last own write.
    pub(crate) fn is_own_write(&self, key: &K, copy: &Object) -> bool {
        let all = self.0.lock(key);
        all.get(key).is_some_and(|e| e.revision == copy.revision())
    }

    pub(crate) fn forget(&self, key: &K) {
        self.0.lock(key).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(revision: u64) -> Object {
        let metadata = json!({"name": "x", "resourceVersion": revision.to_string()});
        Object::from_value(&json!({"metadata": metadata})).unwrap()
    }

    fn check(written: &StatusExpectations<u8>, copy: u64, turn: &str) {
        let readiness = match written.check(&1, || (copy > 0).then(|| at(copy))) {
            ReconcileReadiness::Ready(object) => format!("now {}", object.revision()),
            ReconcileReadiness::Gone => "gone".to_owned(),
            ReconcileReadiness::After(rest) => format!("in {rest:?}"),
            ReconcileReadiness::Awaited => "awaited".to_owned(),
        };
        assert_eq!(readiness, turn);
    }

    /// The object is deleted between the write and its response. The handler is called before
    /// the write is recorded, or at the same time.
    #[tokio::test]
    async fn a_write_to_a_deleted_object_is_not_recorded() {
        let written = StatusExpectations::default();
        written.forget(&1);
        written.expect(&1, &at(5), || None);
        assert!(written.0.lock(&1).is_empty());
        std::thread::scope(|scope| {
            written.expect(&1, &at(5), || {
                scope.spawn(|| written.forget(&1));
                std::thread::park_timeout(Duration::from_millis(20));
                Some(at(4))
            });
        });
        assert!(written.0.lock(&1).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_wait_for_their_pace_and_for_the_copy() {
        let written = StatusExpectations::default();
        check(&written, 3, "now 3");
        written.expect(&1, &at(5), || Some(at(3)));
        assert!(written.is_own_write(&1, &at(5)) && written.is_ahead_of(&1, &at(4)));
        check(&written, 5, "in 20ms");
        tokio::time::advance(MIN_WRITE_INTERVAL).await;
        check(&written, 5, "now 5");
        assert!(!written.satisfy(&1, &at(5)));
        check(&written, 4, "awaited");
        assert!(!written.satisfy(&1, &at(4)));
        assert!(written.satisfy(&1, &at(6)));
        assert!(!written.satisfy(&1, &at(7)));
        check(&written, 0, "gone");
        written.forget(&1);
        check(&written, 4, "now 4");
    }
}
