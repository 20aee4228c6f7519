//! What is remembered of a cluster between two looks, and when the next is due.
//! Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::collect::{Facts, Resources};
use super::damping::Damper;
use crate::condition::Verdict;

/// The first wait for the sums of nodes and pods; it doubles up to the period.
const FIRST_SUM: Duration = Duration::from_millis(20);

/// Why a cluster is looked at before its time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wake {
    pub(super) probe: bool,
    /// What the member serves may have changed.
    pub(super) discover: bool,
}

#[derive(Default)]
pub(super) struct Track {
    pub(super) damper: Damper,
    /// The verdict that shall be shown; `None`: what is shown stays.
    pub(super) ready: Option<Verdict>,
    /// Well, and shown to be: facts and resources are told.
    pub(super) well: bool,
    pub(super) facts: Option<Facts>,
    pub(super) resources: Option<Resources>,
    /// Since when there is no connection.
    pub(super) unconnected: Option<Timestamp>,
    probe_at: Option<Timestamp>,
    /// Looks at sums that were not there yet.
    sums_missed: Option<u32>,
}

impl Track {
    pub(super) fn probe_due(&self, wake: Wake, now: Timestamp) -> bool {
        wake.probe || self.probe_at.is_none_or(|at| now >= at)
    }

    /// `period`: between probes.
    pub(super) fn probed(&mut self, now: Timestamp, period: Duration) {
        self.probe_at = Some(later(now, period));
    }

    /// Whether the sums are read: once per period, and until they are there.
    pub(super) fn sums_due(&self, probed: bool) -> bool {
        probed || self.sums_missed.is_some()
    }

    pub(super) fn summed(&mut self, found: Option<Resources>) {
        self.sums_missed = match found {
            Some(found) => {
                self.resources = Some(found);
                None
            }
            None => Some(self.sums_missed.map_or(0, |n| n.saturating_add(1))),
        };
    }

    /// How long until the next look.
    pub(super) fn next(&self, now: Timestamp, period: Duration) -> Duration {
        let left = self
            .probe_at
            .map_or(SignedDuration::ZERO, |at| at.duration_since(now));
        let left = Duration::try_from(left).unwrap_or_default().min(period);
        match self.sums_missed {
            Some(n) => left.min(FIRST_SUM.saturating_mul(1 << n.min(16))),
            None => left,
        }
    }
}

/// A sum that exceeds the calendar is its end.
fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn probes_are_periodic() {
        let mut track = Track::default();
        let due = |track: &mut Track, second| {
            let probed = track.probe_due(Wake::default(), at(second));
            if probed {
                track.probed(at(second), PERIOD);
            }
            probed
        };
        let probes = (0..60).step_by(5).filter(|s| due(&mut track, *s));
        assert_eq!(probes.collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50]);
        let wake = Wake {
            probe: true,
            ..Wake::default()
        };
        assert!(track.probe_due(wake, at(51)));
    }

    #[test]
    fn sums_that_are_not_there_are_asked_for_ever_more_rarely() {
        let mut track = Track::default();
        track.probed(at(0), PERIOD);
        assert_eq!(track.next(at(0), PERIOD), PERIOD);
        assert!(!track.sums_due(false));
        let mut waits = Vec::new();
        for _ in 0..3 {
            track.summed(None);
            waits.push(track.next(at(0), PERIOD).as_millis());
        }
        assert_eq!(waits, [20, 40, 80]);
        for _ in 0..40 {
            track.summed(None);
        }
        assert_eq!(track.next(at(4), PERIOD), Duration::from_secs(6));
        assert!(track.sums_due(false));
    }
}
