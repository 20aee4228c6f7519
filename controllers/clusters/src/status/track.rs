//! The state of a cluster between two syncs, and when the next sync is due. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::collect::{Facts, Resources};
use super::damping::Damper;
use crate::condition::Verdict;

/// The first delay while the totals of nodes and pods are missing; it doubles up to the
/// period.
const FIRST_SUM: Duration = Duration::from_millis(20);

/// Why a cluster is synced before its period is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wake {
    pub(super) probe: bool,
    /// The APIs of the member may have changed.
    pub(super) discover: bool,
}

#[derive(Default)]
pub(super) struct Track {
    pub(super) damper: Damper,
    /// The Ready condition to write; `None`: the current one stays.
    pub(super) ready: Option<Verdict>,
    /// The cluster is ready and reported so: APIs and resources are written.
    pub(super) well: bool,
    pub(super) facts: Option<Facts>,
    pub(super) resources: Option<Resources>,
    /// Since when there is no connection.
    pub(super) unconnected: Option<Timestamp>,
    probe_at: Option<Timestamp>,
    /// How often the totals were missing.
    sums_missed: Option<u32>,
}

impl Track {
    pub(super) fn probe_due(&self, wake: Wake, now: Timestamp) -> bool {
        wake.probe || self.probe_at.is_none_or(|at| now >= at)
    }

    /// `period` is the time between probes.
    pub(super) fn probed(&mut self, now: Timestamp, period: Duration) {
        self.probe_at = Some(later(now, period));
    }

    /// Whether to read the totals: once per period, and until they are available.
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

    /// The delay until the next sync.
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

/// `now + by`, limited to the largest timestamp.
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
    fn missing_totals_are_read_with_backoff() {
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
