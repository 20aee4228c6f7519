//! Own writes: what the copy of the control plane may not show yet, and how long
//! ago they were.
//!
//! Deciding on an older copy would end in a conflict, or, when the state has gone
//! back to what the old copy says, in no write at all. What follows a write closely
//! is gathered: several clusters often report within a few milliseconds.

use std::hash::Hash;
use std::time::Duration;

use machinery::Object;
use flotilla_runtime::ShardedMap;
use tokio::time::Instant;

/// Between two writes of the same status; the first is never delayed.
const PACE: Duration = Duration::from_millis(20);

struct Entry {
    revision: u64,
    at: Instant,
    /// Somebody wants to decide as soon as the copy shows the write.
    awaited: bool,
}

/// The last own write of each key, until the key is forgotten.
pub(crate) struct Written<K>(ShardedMap<K, Entry>);

/// Whether it is time to decide.
pub(crate) enum Turn {
    /// On this copy.
    Now(Object),
    /// There is no object.
    Gone,
    /// Later.
    In(Duration),
    /// When [`Written::is_news`] says so.
    Awaited,
}

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self(ShardedMap::default())
    }
}

impl<K: Clone + Eq + Hash> Written<K> {
    /// `look` reads the copy of the object that the key names. When there is none, the
    /// handler that called [`Self::forget`] was faster than the answer to the write, and
    /// nothing is kept, since nobody would forget it later.
    pub(crate) fn note(&self, key: &K, written: &Object, look: impl FnOnce() -> Option<Object>) {
        let mut all = self.0.lock(key);
        if look().is_none() {
            return;
        }
        let entry = Entry {
            revision: written.revision(),
            at: Instant::now(),
            awaited: false,
        };
        all.insert(key.clone(), entry);
    }

    /// `look` reads the copy; no change of it is missed, since handlers that ask
    /// [`Self::is_news`] run after it was changed.
    pub(crate) fn turn(&self, key: &K, look: impl FnOnce() -> Option<Object>) -> Turn {
        let mut all = self.0.lock(key);
        let Some(copy) = look() else {
            return Turn::Gone;
        };
        let Some(entry) = all.get_mut(key) else {
            return Turn::Now(copy);
        };
        let rest = PACE.saturating_sub(entry.at.elapsed());
        if !rest.is_zero() {
            Turn::In(rest)
        } else if entry.revision > copy.revision() {
            entry.awaited = true;
            Turn::Awaited
        } else {
            Turn::Now(copy)
        }
    }

    /// Whether a new copy shows a write that was waited for.
    pub(crate) fn is_news(&self, key: &K, copy: &Object) -> bool {
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
    pub(crate) fn is_echo(&self, key: &K, copy: &Object) -> bool {
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

    fn check(written: &Written<u8>, copy: u64, turn: &str) {
        let told = match written.turn(&1, || (copy > 0).then(|| at(copy))) {
            Turn::Now(object) => format!("now {}", object.revision()),
            Turn::Gone => "gone".to_owned(),
            Turn::In(rest) => format!("in {rest:?}"),
            Turn::Awaited => "awaited".to_owned(),
        };
        assert_eq!(told, turn);
    }

    /// The object ends between the write and its answer. The handler hears of the end
    /// before the write is noted, or while it is.
    #[tokio::test]
    async fn a_write_to_what_is_gone_is_not_kept() {
        let written = Written::default();
        written.forget(&1);
        written.note(&1, &at(5), || None);
        assert!(written.0.lock(&1).is_empty());
        std::thread::scope(|scope| {
            written.note(&1, &at(5), || {
                scope.spawn(|| written.forget(&1));
                std::thread::park_timeout(Duration::from_millis(20));
                Some(at(4))
            });
        });
        assert!(written.0.lock(&1).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_wait_for_their_pace_and_for_the_copy() {
        let written = Written::default();
        check(&written, 3, "now 3");
        written.note(&1, &at(5), || Some(at(3)));
        assert!(written.is_echo(&1, &at(5)) && written.is_ahead_of(&1, &at(4)));
        check(&written, 5, "in 20ms");
        tokio::time::advance(PACE).await;
        check(&written, 5, "now 5");
        assert!(!written.is_news(&1, &at(5)));
        check(&written, 4, "awaited");
        assert!(!written.is_news(&1, &at(4)));
        assert!(written.is_news(&1, &at(6)));
        assert!(!written.is_news(&1, &at(7)));
        check(&written, 0, "gone");
        written.forget(&1);
        check(&written, 4, "now 4");
    }
}
