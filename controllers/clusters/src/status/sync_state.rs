//! The state of a cluster between two syncs, and when the next sync is due. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::backoff::exponential_delay;

use super::cluster_status::{MemberApiInfo, MemberResources};
use super::ready_thresholds::LastReadyObservation;
use crate::condition::ConditionUpdate;

/// The first delay while the totals of nodes and pods are missing; it doubles up to the
/// period.
const INITIAL_SUMMARY_DELAY: Duration = Duration::from_millis(20);

/// Why a cluster is synced before its period is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterStatusTrigger {
    pub(super) probe: bool,
    /// The APIs of the member may have changed.
    pub(super) discover: bool,
}

#[derive(Default)]
pub(super) struct ClusterStatusSyncState {
    pub(super) last_ready_observation: LastReadyObservation,
    /// The Ready condition to write; `None`: the current one stays.
    pub(super) ready_condition: Option<ConditionUpdate>,
    /// The cluster is ready and reported so: APIs and resources are written.
    pub(super) is_ready: bool,
    pub(super) api_info: Option<MemberApiInfo>,
    pub(super) resources: Option<MemberResources>,
    /// Since when there is no connection.
    pub(super) unconnected_since: Option<Timestamp>,
    next_probe: Option<Timestamp>,
    /// How often the totals were missing.
    summary_misses: Option<u32>,
}

impl ClusterStatusSyncState {
    pub(super) fn is_probe_due(&self, wake: ClusterStatusTrigger, now: Timestamp) -> bool {
        wake.probe || self.next_probe.is_none_or(|at| now >= at)
    }

    /// `period` is the time between probes.
    pub(super) fn record_probe(&mut self, now: Timestamp, period: Duration) {
        self.next_probe = Some(saturating_later(now, period));
    }

    /// Whether to read the totals: once per period, and until they are available.
    pub(super) fn is_summary_due(&self, probed: bool) -> bool {
        probed || self.summary_misses.is_some()
    }

    pub(super) fn record_summary(&mut self, resources: Option<MemberResources>) {
        self.summary_misses = match resources {
            Some(resources) => {
                self.resources = Some(resources);
                None
            }
            None => Some(self.summary_misses.map_or(0, |n| n.saturating_add(1))),
        };
    }

    /// The delay until the next sync.
    pub(super) fn next_delay(&self, now: Timestamp, period: Duration) -> Duration {
        let left = self
            .next_probe
            .map_or(SignedDuration::ZERO, |at| at.duration_since(now));
        let left = Duration::try_from(left).unwrap_or_default().min(period);
        match self.summary_misses {
            Some(n) => exponential_delay(INITIAL_SUMMARY_DELAY, left, n),
            None => left,
        }
    }
}

/// `now + by`, limited to the largest timestamp.
fn saturating_later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    // proves: CST-period
    #[test]
    fn probes_are_periodic() {
        let mut track = ClusterStatusSyncState::default();
        let due = |track: &mut ClusterStatusSyncState, second| {
            let probed = track.is_probe_due(ClusterStatusTrigger::default(), at(second));
            if probed {
                track.record_probe(at(second), PERIOD);
            }
            probed
        };
        let probes = (0..60).step_by(5).filter(|s| due(&mut track, *s));
        assert_eq!(probes.collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50]);
        let wake = ClusterStatusTrigger {
            probe: true,
            ..ClusterStatusTrigger::default()
        };
        assert!(track.is_probe_due(wake, at(51)));
    }

    #[test]
    fn missing_totals_are_read_with_backoff() {
        let mut track = ClusterStatusSyncState::default();
        track.record_probe(at(0), PERIOD);
        assert_eq!(track.next_delay(at(0), PERIOD), PERIOD);
        assert!(!track.is_summary_due(false));
        let mut waits = Vec::new();
        for _ in 0..3 {
            track.record_summary(None);
            waits.push(track.next_delay(at(0), PERIOD).as_millis());
        }
        assert_eq!(waits, [20, 40, 80]);
        for _ in 0..40 {
            track.record_summary(None);
        }
        assert_eq!(track.next_delay(at(4), PERIOD), Duration::from_secs(6));
        assert!(track.is_summary_due(false));
    }
}
