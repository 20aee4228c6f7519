//! Delays the repairs of an object that somebody in the member changes back: each repair that is
//! undone doubles the delay, and quiet time resets it. Time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The delay of the second repair; the first one is made at once.
const BASE_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);
/// An object that needs no repair for this long is no longer contested.
const QUIET_TIME: Duration = Duration::from_secs(10 * 60);
/// An object that needs another repair after this many is contested.
const CONTESTED_REPAIRS: u32 = 2;
/// Beyond this number of Works, those that are quiet are forgotten before another is added.
const MAX_TRACKED_WORKS: usize = 10_000;
/// The repairs that are assumed of an object which a former leader reported as contested.
const RESUMED_REPAIRS: u32 = 6;

/// The repairs of one object that followed each other.
#[derive(Clone, Debug)]
struct RepairHistory {
    last: Instant,
    repairs: u32,
    /// The generation of the Work that was written last.
    generation: i64,
    /// Which field is contested, and by whom, once that was found out.
    conflict: Option<String>,
}

impl RepairHistory {
    fn is_quiet(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= QUIET_TIME
    }

    fn delay(&self) -> Duration {
        let doublings = self.repairs.saturating_sub(1).min(16);
        BASE_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY)
    }
}

/// When an object may be repaired.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RepairTiming {
    Now,
    /// `unexplained`: the object is contested, and nobody has recorded yet by whom.
    After {
        delay: Duration,
        unexplained: bool,
    },
}

/// Whether the objects of a Work are contested.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RepairQuiet {
    /// Nothing is known about the Work.
    Untracked,
    /// They were, and are not any more.
    Quiet,
    After(Duration),
}

/// The repairs of the objects in one cluster, by the key of the Work and the name of the object.
#[derive(Debug, Default)]
pub(crate) struct RepairBackoff(Mutex<HashMap<String, HashMap<String, RepairHistory>>>);

impl RepairBackoff {
    /// When an object may be written. A new generation of the Work is written at once.
    pub(crate) fn timing(
        &self,
        work: &str,
        object: &str,
        generation: i64,
        now: Instant,
    ) -> RepairTiming {
        let histories = self.0.lock();
        let history = histories.get(work).and_then(|objects| objects.get(object));
        let Some(history) = history.filter(|h| h.generation == generation && !h.is_quiet(now))
        else {
            return RepairTiming::Now;
        };
        let elapsed = now.duration_since(history.last);
        match history.delay().checked_sub(elapsed) {
            Some(delay) if !delay.is_zero() => RepairTiming::After {
                delay,
                unexplained: history.repairs >= CONTESTED_REPAIRS && history.conflict.is_none(),
            },
            _ => RepairTiming::Now,
        }
    }

    /// Records that an object was repaired.
    pub(crate) fn record(&self, work: &str, object: &str, generation: i64, now: Instant) {
        let mut histories = self.0.lock();
        if histories.len() >= MAX_TRACKED_WORKS {
            histories.retain(|_, objects| objects.values().any(|history| !history.is_quiet(now)));
        }
        let objects = histories.entry(work.to_owned()).or_default();
        let history = objects
            .entry(object.to_owned())
            .or_insert_with(|| RepairHistory {
                last: now,
                repairs: 0,
                generation,
                conflict: None,
            });
        let repairs = match history.is_quiet(now) {
            true => 1,
            false => history.repairs.saturating_add(1),
        };
        *history = RepairHistory {
            last: now,
            repairs,
            generation,
            // By now it may be another field, or another manager.
            conflict: None,
        };
    }

    /// Records who contests an object.
    pub(crate) fn explain(&self, work: &str, object: &str, conflict: String) {
        let mut histories = self.0.lock();
        let objects = histories.get_mut(work);
        if let Some(history) = objects.and_then(|objects| objects.get_mut(object)) {
            history.conflict = Some(conflict);
        }
    }

    /// Who contests the objects of a Work.
    pub(crate) fn conflicts(&self, work: &str) -> Vec<String> {
        let histories = self.0.lock();
        let objects = histories.get(work).into_iter().flatten();
        let mut conflicts: Vec<String> = objects.filter_map(|(_, h)| h.conflict.clone()).collect();
        conflicts.sort_unstable();
        conflicts
    }

    /// Whether the objects of a Work are still contested. Forgets them if they are not.
    pub(crate) fn quiet(&self, work: &str, now: Instant) -> RepairQuiet {
        let mut histories = self.0.lock();
        let Some(objects) = histories.get(work) else {
            return RepairQuiet::Untracked;
        };
        let last = objects.values().map(|h| h.last).max().unwrap_or(now);
        match QUIET_TIME.checked_sub(now.duration_since(last)) {
            Some(rest) if !rest.is_zero() => RepairQuiet::After(rest),
            _ => {
                histories.remove(work);
                RepairQuiet::Quiet
            }
        }
    }

    /// Resumes the backoff of objects that a former leader reported as contested; returns how
    /// long they have to be quiet.
    pub(crate) fn resume(
        &self,
        work: &str,
        objects: Vec<String>,
        generation: i64,
        now: Instant,
    ) -> Duration {
        let history = RepairHistory {
            last: now,
            repairs: RESUMED_REPAIRS,
            generation,
            conflict: None,
        };
        let resumed = objects.into_iter().map(|name| (name, history.clone()));
        self.0.lock().insert(work.to_owned(), resumed.collect());
        QUIET_TIME
    }

    pub(crate) fn forget(&self, work: &str) {
        self.0.lock().remove(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repairs an object whenever that is allowed, as if each repair were undone at once, and
    /// returns the seconds of the repairs.
    fn repaired_at(backoff: &RepairBackoff, began: Instant, seconds: u64) -> Vec<u64> {
        let mut repaired = Vec::new();
        for second in 0..seconds {
            let now = began + Duration::from_secs(second);
            if backoff.timing("w", "o", 1, now) == RepairTiming::Now {
                backoff.record("w", "o", 1, now);
                repaired.push(second);
            }
        }
        repaired
    }

    // proves: EXE-repair-backoff
    #[test]
    fn repairs_that_are_undone_become_rare() {
        let (backoff, began) = (RepairBackoff::default(), Instant::now());
        let repaired = repaired_at(&backoff, began, 3600);
        assert_eq!(repaired[..9], [0, 1, 3, 7, 15, 31, 63, 127, 255]);
        let last_pauses = repaired
            .windows(2)
            .rev()
            .take(8)
            .map(|pair| pair[1] - pair[0]);
        assert!(last_pauses.into_iter().all(|pause| pause == 300));
    }

    // proves: EXE-repair-backoff
    #[test]
    fn quiet_time_and_a_new_generation_reset_the_backoff() {
        let (backoff, began) = (RepairBackoff::default(), Instant::now());
        let last = *repaired_at(&backoff, began, 60).last().unwrap();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        assert_eq!(backoff.timing("w", "o", 2, at(60)), RepairTiming::Now);
        assert_eq!(backoff.timing("w", "other", 1, at(60)), RepairTiming::Now);
        let RepairTiming::After { unexplained, .. } = backoff.timing("w", "o", 1, at(60)) else {
            panic!("the repair must wait");
        };
        assert!(unexplained);
        backoff.explain("w", "o", "by x".into());
        assert_eq!(backoff.conflicts("w"), ["by x"]);
        let rest = QUIET_TIME - Duration::from_secs(60 - last);
        assert_eq!(backoff.quiet("w", at(60)), RepairQuiet::After(rest));
        assert_eq!(backoff.quiet("w", at(60) + rest), RepairQuiet::Quiet);
        assert_eq!(backoff.quiet("w", at(60) + rest), RepairQuiet::Untracked);
        assert_eq!(repaired_at(&backoff, at(5000), 8), [0, 1, 3, 7]);
    }

    #[test]
    fn a_backoff_resumes_after_a_restart() {
        let (backoff, now) = (RepairBackoff::default(), Instant::now());
        assert_eq!(
            backoff.resume("w", vec!["o".to_owned()], 1, now),
            QUIET_TIME
        );
        let delay = Duration::from_secs(32);
        let expected = RepairTiming::After {
            delay,
            unexplained: true,
        };
        assert_eq!(backoff.timing("w", "o", 1, now), expected);
        assert_eq!(backoff.timing("w", "o", 1, now + delay), RepairTiming::Now);
        backoff.forget("w");
        assert_eq!(backoff.quiet("w", now), RepairQuiet::Untracked);
    }
}
