//! Decides when the agent of a cluster in pull mode has been silent for too long. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::condition::ConditionUpdate;

/// The observations of a cluster in pull mode.
pub(super) struct ClusterObservation<'a> {
    /// The Ready condition: status and `lastTransitionTime`.
    pub(super) ready: Option<(&'a str, &'a str)>,
    /// The Cluster's creation time; used only while there is no Ready condition.
    pub(super) created: Timestamp,
    /// The lease's `renewTime`.
    pub(super) lease_renewed: Option<Timestamp>,
}

/// How long an agent may be silent.
#[derive(Clone, Copy)]
pub(super) struct GracePeriods {
    pub(super) monitor: Duration,
    /// For an agent that has never reported.
    pub(super) startup: Duration,
}

/// The last observation, and when the agent last showed a sign of life.
#[derive(Debug)]
pub(super) struct ClusterHealth {
    ready: Option<(String, String)>,
    lease_renewed: Option<Timestamp>,
    last_alive: Timestamp,
}

impl ClusterHealth {
    pub(super) fn new(observation: &ClusterObservation<'_>, now: Timestamp) -> Self {
        Self {
            ready: observation.ready.map(to_owned_pair),
            lease_renewed: observation.lease_renewed,
            // Without a condition and a lease the silence counts from the Cluster's
            // creation, no matter when this process started; a lease shows that an agent
            // exists.
            last_alive: match (observation.ready, observation.lease_renewed) {
                (None, None) => observation.created,
                _ => now,
            },
        }
    }

    /// The update of the Ready condition, if the grace period has passed.
    pub(super) fn observe(
        &mut self,
        observation: &ClusterObservation<'_>,
        now: Timestamp,
        grace: GracePeriods,
    ) -> Option<ConditionUpdate> {
        let ready = observation.ready.map(to_owned_pair);
        if self.ready != ready {
            self.ready = ready;
            self.last_alive = now;
        }
        if observation.lease_renewed > self.lease_renewed {
            self.lease_renewed = observation.lease_renewed;
            self.last_alive = now;
        }
        let grace = match observation.ready {
            None => grace.startup,
            Some(_) => grace.monitor,
        };
        let silent = now.duration_since(self.last_alive).unsigned_abs();
        if now < self.last_alive || silent <= grace {
            return None;
        }
        match observation.ready {
            None => Some(ConditionUpdate::new(
                "Unknown",
                "ClusterStatusNeverUpdated",
                "Cluster status controller never posted cluster status.",
            )),
            Some(("Unknown", _)) => None,
            Some(_) => Some(ConditionUpdate::new(
                "Unknown",
                "ClusterStatusUnknown",
                "Cluster status controller stopped posting cluster status.",
            )),
        }
    }
}

fn to_owned_pair((status, since): (&str, &str)) -> (String, String) {
    (status.to_owned(), since.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Steps: second, Ready, lease renewed at, expected reason.
    fn check(steps: &[(i64, Option<&str>, Option<i64>, &str)]) {
        let grace = GracePeriods {
            monitor: Duration::from_secs(40),
            startup: Duration::from_secs(60),
        };
        let mut health = None;
        for (second, ready, renewed, expected) in steps {
            let observation = ClusterObservation {
                ready: ready.map(|r| (r, "then")),
                created: at(0),
                lease_renewed: renewed.map(at),
            };
            let health =
                health.get_or_insert_with(|| ClusterHealth::new(&observation, at(*second)));
            let verdict = health.observe(&observation, at(*second), grace);
            let reason = verdict.map_or("", |v| v.reason);
            assert_eq!(reason, *expected, "at {second} of {steps:?}");
        }
    }

    #[test]
    fn silence_becomes_unknown() {
        let yes = Some("True");
        check(&[
            (5, None, None, ""),
            (60, None, None, ""),
            (61, None, None, "ClusterStatusNeverUpdated"),
        ]);
        check(&[(100, None, None, "ClusterStatusNeverUpdated")]);
        check(&[(100, None, Some(90), ""), (160, None, Some(90), "")]);
        check(&[
            (100, yes, Some(99), ""),
            (140, yes, Some(99), ""),
            (141, yes, Some(99), "ClusterStatusUnknown"),
            (142, Some("Unknown"), Some(99), ""),
            (190, Some("Unknown"), Some(99), ""),
        ]);
        check(&[
            (100, yes, Some(99), ""),
            (135, yes, Some(134), ""),
            (175, yes, Some(134), ""),
            (176, yes, Some(134), "ClusterStatusUnknown"),
        ]);
        check(&[
            (100, yes, None, ""),
            (135, Some("False"), None, ""),
            (175, Some("False"), None, ""),
            (176, Some("False"), None, "ClusterStatusUnknown"),
        ]);
        // A clock that goes back has no effect.
        check(&[(100, yes, None, ""), (10, yes, None, "")]);
    }
}
