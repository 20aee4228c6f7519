//! Remembers the controllers' own writes until the informers show them (client-go's
//! expectations, kube-scheduler's assume cache).
//!
//! Reconciling an older copy would cause a conflict, or no write at all if the state has
//! returned to what the old copy says. A write may carry a value that counts until the
//! informer's copy has it.
//!
//! Keys have one worker at a time; the event handlers run concurrently, and each calls
//! [`Expectations::satisfy`], [`Expectations::observe`] or [`Expectations::forget`] after the
//! informer's copy changed.

use std::hash::Hash;
use std::time::Duration;

use client::{Api, Informer, ResourcePath, ignore_not_found};
use machinery::Object;
use tokio::time::Instant;

use crate::sharded_map::ShardedMap;

/// The last own write of a key.
#[derive(Debug)]
struct Expectation<V> {
    /// Revision that the write made; `None` while it is sent.
    revision: Option<u64>,
    /// The newest revision that counted as this write while it was sent.
    newest_counted: u64,
    written_at: Instant,
    /// A reconciliation waits until the informer shows the write.
    awaited: bool,
    /// The assumed value; dropped when the informer shows the write.
    assumed: Option<V>,
}

impl<V> Expectation<V> {
    fn sent(assumed: Option<V>) -> Self {
        Self {
            revision: None,
            newest_counted: 0,
            written_at: Instant::now(),
            awaited: false,
            assumed,
        }
    }

    fn is_ahead_of(&self, revision: u64) -> bool {
        self.revision.is_none_or(|written| written > revision)
    }

    /// How much of an interval that begins with the write is left.
    fn rest_of(&self, interval: Duration) -> Duration {
        interval.saturating_sub(self.written_at.elapsed())
    }
}

/// The last own write of each key, until the key is forgotten.
#[derive(Debug)]
pub struct Expectations<K, V = ()> {
    entries: ShardedMap<K, Expectation<V>>,
    min_write_interval: Duration,
}

/// The value that an assumption replaced, for [`Expectations::restore`].
#[derive(Debug)]
pub struct PreviousExpectation<V>(Option<Expectation<V>>);

/// A write that is not answered yet.
#[derive(Debug)]
pub struct PendingWrite<'a, K: Clone + Eq + Hash, V: Clone = ()> {
    expectations: &'a Expectations<K, V>,
    key: &'a K,
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for PendingWrite<'_, K, V> {
    fn drop(&mut self) {
        let mut all = self.expectations.entries.lock(self.key);
        if all
            .get(self.key)
            .is_some_and(|entry| entry.revision.is_none())
        {
            all.remove(self.key);
        }
    }
}

/// Whether a key can be reconciled now.
#[derive(Debug)]
pub enum ReconcileReadiness {
    /// Reconcile this copy.
    Ready(Object),
    /// The object does not exist.
    Gone,
    /// Try again after this time.
    After(Duration),
    /// Wait until [`Expectations::satisfy`] returns true.
    Awaited,
}

impl<K, V> Default for Expectations<K, V> {
    fn default() -> Self {
        Self::with_min_write_interval(Duration::ZERO)
    }
}

impl<K, V> Expectations<K, V> {
    /// [`Self::check`] delays a key until this time has passed since its last write.
    pub fn with_min_write_interval(min_write_interval: Duration) -> Self {
        Self {
            entries: ShardedMap::default(),
            min_write_interval,
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Expectations<K, V> {
    /// Assumes a value that is about to be written. [`Self::expect`] or [`Self::restore`] follows.
    pub fn assume(&self, key: &K, value: V) -> PreviousExpectation<V> {
        let entry = Expectation::sent(Some(value));
        PreviousExpectation(self.entries.lock(key).insert(key.clone(), entry))
    }

    /// Records that a write is sent: until [`Self::expect`], every copy counts as it. Dropping the
    /// result without an answer forgets the write.
    pub fn begin_write<'a>(&'a self, key: &'a K) -> PendingWrite<'a, K, V> {
        let mut all = self.entries.lock(key);
        all.insert(key.clone(), Expectation::sent(None));
        PendingWrite {
            expectations: self,
            key,
        }
    }

    /// The assumed value could not be written.
    pub fn restore(&self, key: &K, previous: PreviousExpectation<V>) {
        let mut all = self.entries.lock(key);
        match previous.0 {
            Some(entry) => drop(all.insert(key.clone(), entry)),
            None => drop(all.remove(key)),
        }
    }

    /// Records an own write. `look` reads the informer's copy of the object. If there is none,
    /// the handler that called [`Self::forget`] was faster than the response to the write, and
    /// nothing is recorded, since nobody would forget it later. Returns whether
    /// [`Self::is_own_write`] has meanwhile counted a newer copy of another writer as this write.
    pub fn expect(&self, key: &K, written: &Object, look: impl FnOnce() -> Option<Object>) -> bool {
        let mut all = self.entries.lock(key);
        let sent = all.remove(key).filter(|entry| entry.revision.is_none());
        let sent = sent.unwrap_or_else(|| Expectation::sent(None));
        let revision = written.revision();
        let Some(copy) = look() else {
            return sent.newest_counted > revision;
        };
        let entry = Expectation {
            revision: Some(revision),
            assumed: sent.assumed.filter(|_| copy.revision() < revision),
            ..Expectation::sent(None)
        };
        all.insert(key.clone(), entry);
        sent.newest_counted > revision
    }

    /// Checks whether a key can be reconciled. `look` reads the informer's copy; no change of
    /// it is missed, because handlers call [`Self::satisfy`] after the copy was changed.
    pub fn check(&self, key: &K, look: impl FnOnce() -> Option<Object>) -> ReconcileReadiness {
        let mut all = self.entries.lock(key);
        let Some(copy) = look() else {
            return ReconcileReadiness::Gone;
        };
        let Some(entry) = all.get_mut(key) else {
            return ReconcileReadiness::Ready(copy);
        };
        let rest = entry.rest_of(self.min_write_interval);
        if !rest.is_zero() {
            ReconcileReadiness::After(rest)
        } else if entry.is_ahead_of(copy.revision()) {
            entry.awaited = true;
            ReconcileReadiness::Awaited
        } else {
            ReconcileReadiness::Ready(copy)
        }
    }

    /// How much of an interval that began with the last write of a key is left.
    pub fn rest_of_interval(&self, key: &K, interval: Duration) -> Duration {
        let all = self.entries.lock(key);
        all.get(key)
            .map_or(Duration::ZERO, |entry| entry.rest_of(interval))
    }

    /// The informer has a new copy. Returns whether it shows a write that a reconciliation
    /// waits for.
    pub fn satisfy(&self, key: &K, copy: &Object) -> bool {
        let mut all = self.entries.lock(key);
        let Some(entry) = all.get_mut(key) else {
            return false;
        };
        if entry.is_ahead_of(copy.revision()) {
            return false;
        }
        entry.assumed = None;
        std::mem::take(&mut entry.awaited)
    }

    /// The value of an own write that a copy of this revision does not show.
    pub fn assumed(&self, key: &K, revision: u64) -> Option<V> {
        let all = self.entries.lock(key);
        let entry = all.get(key).filter(|entry| entry.is_ahead_of(revision));
        entry?.assumed.clone()
    }

    /// Whether a copy is older than the last own write.
    pub fn is_ahead_of(&self, key: &K, copy: &Object) -> bool {
        let all = self.entries.lock(key);
        all.get(key).is_some_and(|e| e.is_ahead_of(copy.revision()))
    }

    /// Whether a copy is the last own write. While that is sent, this returns true, and
    /// [`Self::expect`] then finds out whether that was right.
    pub fn is_own_write(&self, key: &K, copy: &Object) -> bool {
        let mut all = self.entries.lock(key);
        let Some(entry) = all.get_mut(key) else {
            return false;
        };
        if entry.revision.is_none() {
            entry.newest_counted = copy.revision().max(entry.newest_counted);
        }
        entry
            .revision
            .is_none_or(|written| written == copy.revision())
    }

    /// The informer has a new copy, or none any more: forgets a write that this shows.
    pub fn observe(&self, key: &K, copy: Option<&Object>) {
        let mut all = self.entries.lock(key);
        let is_ahead = |copy: &Object| {
            let entry = all.get(key);
            entry.is_some_and(|entry| entry.is_ahead_of(copy.revision()))
        };
        if !copy.is_some_and(is_ahead) {
            all.remove(key);
        }
    }

    /// The object was deleted.
    pub fn forget(&self, key: &K) {
        self.entries.lock(key).remove(key);
    }
}

impl Expectations<String> {
    /// The object by `namespace/name`, not older than the last own write: an older copy may equal
    /// what is desired again, and the write would stay.
    pub async fn read(
        &self,
        api: &dyn Api,
        informer: &Informer,
        at: ResourcePath<'_>,
    ) -> client::Result<Option<Object>> {
        let cached = informer.get(at.namespace, at.name);
        match &cached {
            Some(copy) if self.is_ahead_of(&copy.meta().key(), copy) => {
                ignore_not_found(api.get(at).await)
            }
            _ => Ok(cached),
        }
    }
}

#[cfg(test)]
mod tests;
