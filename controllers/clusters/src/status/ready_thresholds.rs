//! Holds back a change of a condition until it has lasted for a threshold. Pure.

use std::time::Duration;

use jiff::Timestamp;

/// How long an observation must last before it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyThresholds {
    pub(crate) success: Duration,
    pub(crate) failure: Duration,
}

/// The last observation, and since when it is unchanged.
#[derive(Debug, Default)]
pub(crate) struct LastReadyObservation(Option<(bool, Option<Timestamp>)>);

impl LastReadyObservation {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether to report an observation now, given the reported status `shown`. The first
    /// observation is reported, as is one that changes nothing or for which nothing is
    /// reported yet. The thresholds apply only between True and the other statuses.
    pub(crate) fn should_report(
        &mut self,
        ready: bool,
        shown: Option<&str>,
        now: Timestamp,
        thresholds: ReadyThresholds,
    ) -> bool {
        let Some((was, since)) = self.0 else {
            self.0 = Some((ready, None));
            return true;
        };
        let Some(shown) = shown else { return true };
        let since = if was == ready { since } else { Some(now) };
        self.0 = Some((ready, since));
        let needed = if ready {
            thresholds.success
        } else {
            thresholds.failure
        };
        let lasted = |since| {
            let lasted = now.duration_since(since);
            !lasted.is_negative() && lasted.unsigned_abs() >= needed
        };
        (shown == "True") == ready || since.is_none_or(lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps: second, observed ready, reported status, whether it is reported.
    fn check(steps: &[(i64, bool, Option<&str>, bool)]) {
        let thresholds = ReadyThresholds {
            success: Duration::from_secs(30),
            failure: Duration::from_secs(20),
        };
        let mut damper = LastReadyObservation::default();
        for (second, ready, shown, expected) in steps {
            let now = Timestamp::from_second(*second).unwrap();
            let shows = damper.should_report(*ready, *shown, now, thresholds);
            assert_eq!(shows, *expected, "at {second} of {steps:?}");
        }
    }

    // proves: CST-thresholds, CST-first
    #[test]
    fn only_lasting_observations_are_reported() {
        let (yes, no, unknown) = (Some("True"), Some("False"), Some("Unknown"));
        check(&[(0, true, None, true)]);
        check(&[(0, false, yes, true), (10, false, no, true)]);
        check(&[
            (0, true, None, true),
            (10, true, yes, true),
            (20, false, yes, false),
            (30, false, yes, false),
            (40, false, yes, true),
            (50, false, no, true),
            (60, true, no, false),
            (80, true, no, false),
            (90, true, no, true),
        ]);
        // After a recovery the threshold starts anew with the next failure.
        check(&[
            (0, true, None, true),
            (10, false, yes, false),
            (20, true, yes, true),
            (30, false, yes, false),
            (49, false, yes, false),
            (50, false, yes, true),
        ]);
        check(&[(0, true, yes, true), (10, false, unknown, true)]);
        check(&[(0, true, yes, true), (10, false, None, true)]);
    }
}
