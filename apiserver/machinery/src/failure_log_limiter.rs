//! Decides which failures of a retried operation are logged, so that retries do not
//! flood the log.
//!
//! A key gets a line when it starts to fail, when it fails for a reason that was not
//! logged since then, and when it succeeds again. Its other retries get none.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

/// How many reasons are logged for one key until it succeeds.
const MAX_REASONS: usize = 4;
/// How many failing keys are remembered. One more, and all are forgotten.
const MAX_KEYS: usize = 65_536;

/// The keys that fail at present, with the reasons that were logged.
#[derive(Debug, Default)]
pub struct FailureLogLimiter {
    /// Hashes of keys, and of the reasons logged for each.
    failing: Mutex<BTreeMap<u64, Vec<u64>>>,
}

impl FailureLogLimiter {
    pub const fn new() -> Self {
        Self {
            failing: Mutex::new(BTreeMap::new()),
        }
    }

    /// Records that `key` failed. Returns whether to log it.
    ///
    /// Digits in `reason` do not count: attempts, revisions, ports and times differ
    /// from one retry to the next.
    pub fn record_failure(&self, key: &(impl Hash + ?Sized), reason: &str) -> bool {
        let (key, reason) = (hash(key), hash(&without_digits(reason)));
        let mut failing = self.failing.lock();
        if failing.len() >= MAX_KEYS && !failing.contains_key(&key) {
            failing.clear();
        }
        let logged = failing.entry(key).or_default();
        let is_new = logged.len() < MAX_REASONS && !logged.contains(&reason);
        if is_new {
            logged.push(reason);
        }
        is_new
    }

    /// Records that `key` succeeded. Returns whether to log it: whether a failure of
    /// it was logged before.
    pub fn record_success(&self, key: &(impl Hash + ?Sized)) -> bool {
        let mut failing = self.failing.lock();
        !failing.is_empty() && failing.remove(&hash(key)).is_some()
    }

    /// Forgets all other keys: what they named no longer exists.
    pub fn retain_keys<'a, K: Hash + ?Sized + 'a>(&self, keys: impl Iterator<Item = &'a K>) {
        let mut failing = self.failing.lock();
        if !failing.is_empty() {
            let keys: BTreeSet<u64> = keys.map(hash).collect();
            failing.retain(|key, _| keys.contains(key));
        }
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn without_digits(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_not_logged_and_state_changes_are() {
        let log = FailureLogLimiter::new();
        assert!(!log.record_success("web"), "it never failed");
        assert!(log.record_failure("web", "refused (attempt 1)"));
        assert!(!log.record_failure("web", "refused (attempt 2)"), "a retry");
        assert!(log.record_failure("api", "refused (attempt 1)"));
        assert!(log.record_failure("web", "timed out"), "another reason");
        assert!(!log.record_failure("web", "refused (attempt 3)"));
        assert!(log.record_success("web"));
        assert!(!log.record_success("web"));
        assert!(log.record_failure("web", "timed out"), "it fails anew");
        log.retain_keys(["web"].into_iter());
        assert!(!log.record_failure("web", "timed out"));
        assert!(log.record_failure("api", "refused"), "it was forgotten");
    }

    #[test]
    fn reasons_and_keys_are_bounded() {
        let log = FailureLogLimiter::new();
        let logged = |reason: String| log.record_failure(&0, &reason);
        let lines = ('a'..='z').filter(|c| logged(c.to_string())).count();
        assert_eq!(lines, MAX_REASONS);
        for key in 0..MAX_KEYS + 10 {
            log.record_failure(&key, "down");
        }
        assert!(log.failing.lock().len() <= MAX_KEYS);
    }
}
