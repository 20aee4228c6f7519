//! Derives the conditions Progressing, Available and Degraded of a Work from its condition Applied
//! and the health of its objects. Pure; time is an argument.
//!
//! Karmada declares these types and sets none of them. Two controllers write the conditions of a
//! Work: the execution controller when it has applied it, and the controller of Work status when
//! the health changes. Both call [`set_derived_conditions`], so that no write is needed for them
//! alone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::binding::Condition;
use machinery::conditions::set_status_condition;
use machinery::time::rfc3339_seconds;

pub const APPLIED: &str = "Applied";
pub const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
/// How long objects may be unhealthy before their Work is degraded: the default
/// `progressDeadlineSeconds` of Deployments.
const HEALTH_DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// The health of the objects of a Work, as its `manifestStatuses` report it.
pub struct WorkHealth<'a> {
    /// The number of manifests.
    pub manifests: usize,
    /// `Healthy`, `Unhealthy` or `Unknown`, for each object that has reported.
    pub reported: Vec<&'a str>,
}

impl WorkHealth<'_> {
    /// Status and reason of Available.
    fn availability(&self) -> (&'static str, &'static str) {
        let some = |health: &str| self.reported.contains(&health);
        if some("Unhealthy") {
            ("False", "ObjectsUnhealthy")
        } else if self.reported.len() < self.manifests {
            ("Unknown", "HealthNotReported")
        } else if self.reported.iter().any(|health| *health != "Healthy") {
            ("Unknown", "HealthUnknown")
        } else {
            ("True", "ObjectsHealthy")
        }
    }
}

/// Sets the three conditions, and returns whether one of them has changed. A Work that nobody has
/// tried to apply gets none.
pub fn set_derived_conditions(
    conditions: &mut Vec<Condition>,
    health: &WorkHealth<'_>,
    now: Timestamp,
) -> bool {
    let Some(applied) = find(conditions, APPLIED) else {
        return false;
    };
    let is_applied = applied.status == "True";
    let written_at = rfc3339_seconds(now);
    let set = |all: &mut Vec<Condition>, condition_type: &str, status: &str, reason: &str| {
        let condition = Condition {
            condition_type: condition_type.into(),
            status: status.into(),
            last_transition_time: written_at.clone(),
            reason: reason.into(),
            ..Condition::default()
        };
        set_status_condition(all, condition)
    };
    let (available, reason) = health.availability();
    let mut changed = set(conditions, AVAILABLE, available, reason);
    let is_overdue = remaining_time(conditions, now).is_some_and(|rest| rest.is_zero());
    let [progressing, degraded] = match (is_applied, available) {
        (false, _) => [("False", "AppliedFailed"), ("True", "AppliedFailed")],
        (true, "True") => [("False", "Completed"), ("False", "AsDesired")],
        (true, _) if is_overdue => [("False", "DeadlineExceeded"), ("True", "DeadlineExceeded")],
        (true, _) => [("True", reason), ("False", reason)],
    };
    changed |= set(conditions, PROGRESSING, progressing.0, progressing.1);
    changed |= set(conditions, DEGRADED, degraded.0, degraded.1);
    changed
}

/// How long an applied Work may still be unavailable before it is degraded; `None` if it is
/// available, not applied, or degraded already.
pub fn time_until_degraded(conditions: &[Condition], now: Timestamp) -> Option<Duration> {
    let is_applied = find(conditions, APPLIED).is_some_and(|c| c.status == "True");
    let rest = remaining_time(conditions, now).filter(|_| is_applied)?;
    (!rest.is_zero()).then(|| rest.unsigned_abs())
}

/// The rest of the time in which an unavailable Work may become available; at least zero.
fn remaining_time(conditions: &[Condition], now: Timestamp) -> Option<SignedDuration> {
    let available = find(conditions, AVAILABLE).filter(|c| c.status != "True")?;
    let since: Timestamp = available.last_transition_time.parse().ok()?;
    let rest = HEALTH_DEADLINE - now.duration_since(since);
    Some(rest.max(SignedDuration::ZERO))
}

fn find<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    let mut all = conditions.iter();
    all.find(|c| c.condition_type == condition_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(status: &str) -> Condition {
        Condition {
            condition_type: APPLIED.into(),
            status: status.into(),
            ..Condition::default()
        }
    }

    fn states(conditions: &[Condition]) -> [String; 3] {
        [PROGRESSING, AVAILABLE, DEGRADED].map(|name| {
            let condition = find(conditions, name).unwrap();
            format!("{} {}", condition.status, condition.reason)
        })
    }

    // proves: STA-derived-conditions
    #[test]
    fn the_conditions_follow_from_applied_and_health() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let failed = "AppliedFailed";
        for (status, manifests, reported, expected) in [
            (
                "True",
                1,
                &[][..],
                [
                    "True HealthNotReported",
                    "Unknown HealthNotReported",
                    "False HealthNotReported",
                ],
            ),
            (
                "True",
                1,
                &["Unhealthy"],
                [
                    "True ObjectsUnhealthy",
                    "False ObjectsUnhealthy",
                    "False ObjectsUnhealthy",
                ],
            ),
            (
                "True",
                2,
                &["Healthy"],
                [
                    "True HealthNotReported",
                    "Unknown HealthNotReported",
                    "False HealthNotReported",
                ],
            ),
            (
                "True",
                2,
                &["Unknown", "Healthy"],
                [
                    "True HealthUnknown",
                    "Unknown HealthUnknown",
                    "False HealthUnknown",
                ],
            ),
            (
                "True",
                1,
                &["Healthy"],
                ["False Completed", "True ObjectsHealthy", "False AsDesired"],
            ),
            (
                "False",
                1,
                &["Healthy"],
                [
                    &format!("False {failed}"),
                    "True ObjectsHealthy",
                    &format!("True {failed}"),
                ],
            ),
            (
                "False",
                1,
                &[],
                [
                    &format!("False {failed}"),
                    "Unknown HealthNotReported",
                    &format!("True {failed}"),
                ],
            ),
        ] {
            let mut conditions = vec![applied(status)];
            let reported = reported.to_vec();
            let health = WorkHealth {
                manifests,
                reported,
            };
            assert!(set_derived_conditions(&mut conditions, &health, now));
            assert_eq!(states(&conditions), expected);
            assert!(
                !set_derived_conditions(&mut conditions, &health, now),
                "nothing has changed"
            );
        }
        let health = WorkHealth {
            manifests: 1,
            reported: vec![],
        };
        assert!(
            !set_derived_conditions(&mut vec![], &health, now),
            "not tried yet"
        );
    }

    // proves: STA-degraded-deadline
    #[test]
    fn an_applied_work_that_stays_unhealthy_becomes_degraded() {
        let at = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let unhealthy = WorkHealth {
            manifests: 1,
            reported: vec!["Unhealthy"],
        };
        let mut conditions = vec![applied("True")];
        set_derived_conditions(&mut conditions, &unhealthy, at(0));
        let rest = time_until_degraded(&conditions, at(100));
        assert_eq!(rest, Some(Duration::from_secs(500)));
        assert!(!set_derived_conditions(
            &mut conditions,
            &unhealthy,
            at(599)
        ));
        assert!(set_derived_conditions(&mut conditions, &unhealthy, at(600)));
        assert_eq!(states(&conditions)[0], "False DeadlineExceeded");
        assert_eq!(states(&conditions)[2], "True DeadlineExceeded");
        assert_eq!(time_until_degraded(&conditions, at(600)), None);
        let healthy = WorkHealth {
            manifests: 1,
            reported: vec!["Healthy"],
        };
        assert!(set_derived_conditions(&mut conditions, &healthy, at(601)));
        assert_eq!(states(&conditions)[2], "False AsDesired");
        assert_eq!(time_until_degraded(&conditions, at(601)), None);
    }
}
