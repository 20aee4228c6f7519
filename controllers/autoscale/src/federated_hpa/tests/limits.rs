//! Tests of stabilization and of the limits of changes.

use jiff::{SignedDuration, Timestamp};

use crate::federated_hpa::behavior::{
    ScalingPolicy, ScalingPolicyType, ScalingRules, SelectPolicy,
};
use crate::federated_hpa::scaling_history::{ScalingHistory, StabilizationWindows};
use crate::federated_hpa::scaling_limits::{ReplicaBounds, limit_by_default, limit_by_rules};

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

pub(super) fn policy(kind: ScalingPolicyType, value: i32, period_seconds: i32) -> ScalingPolicy {
    ScalingPolicy {
        kind,
        value,
        period_seconds,
    }
}

pub(super) fn rules(select_policy: SelectPolicy, policies: &[ScalingPolicy]) -> ScalingRules {
    ScalingRules {
        select_policy,
        policies: policies.to_vec(),
        ..ScalingRules::default()
    }
}

// proves: FHP-default-limits
#[test]
fn replicas_at_most_double_without_a_behavior() {
    for (current, desired, min, max, replicas, reason) in [
        (3, 5, 1, 10, 5, "DesiredWithinRange"),
        (3, 9, 1, 10, 6, "ScaleUpLimit"),
        (1, 9, 1, 10, 4, "ScaleUpLimit"),
        (8, 12, 1, 10, 10, "TooManyReplicas"),
        (8, 1, 2, 10, 2, "TooFewReplicas"),
        (8, 3, 2, 10, 3, "DesiredWithinRange"),
        (5, 7, 3, 8, 7, "DesiredWithinRange"),
        (3, 1, 2, 8, 2, "TooFewReplicas"),
        (1, 0, 0, 10, 0, "DesiredWithinRange"),
        (20, 1000, 1, 10, 10, "TooManyReplicas"),
        (3, 1000, 1, 2000, 6, "ScaleUpLimit"),
        (i32::MAX, 3, 2, i32::MAX, 3, "DesiredWithinRange"),
    ] {
        let actual = limit_by_default(current, desired, ReplicaBounds { min, max });
        assert_eq!((actual.replicas, actual.reason), (replicas, reason));
    }
}

// proves: FHP-policies
#[test]
fn policies_limit_changes_in_their_period() {
    use ScalingPolicyType::{Percent, Pods};
    use SelectPolicy::{Disabled, Max, Min};
    let both = [policy(Pods, 4, 60), policy(Percent, 50, 60)];
    for (name, current, desired, select, policies, changes, replicas, reason) in [
        ("pods", 10, 50, Max, &both[..1], &[][..], 14, "ScaleUpLimit"),
        ("percent", 10, 50, Max, &both[1..], &[], 15, "ScaleUpLimit"),
        ("the larger", 10, 50, Max, &both, &[], 15, "ScaleUpLimit"),
        ("the smaller", 10, 50, Min, &both, &[], 14, "ScaleUpLimit"),
        ("disabled", 10, 50, Disabled, &both, &[], 10, "ScaleUpLimit"),
        (
            "bound",
            10,
            200,
            Max,
            &[policy(Percent, 900, 60)],
            &[],
            99,
            "TooManyReplicas",
        ),
        (
            "added before",
            10,
            50,
            Max,
            &both[..1],
            &[(8, 10, -30)],
            12,
            "ScaleUpLimit",
        ),
        (
            "added long ago",
            10,
            50,
            Max,
            &both[..1],
            &[(8, 10, -61)],
            14,
            "ScaleUpLimit",
        ),
        (
            "added too much",
            10,
            50,
            Max,
            &both[..1],
            &[(1, 10, -30)],
            10,
            "ScaleUpLimit",
        ),
        (
            "removed before",
            10,
            50,
            Max,
            &both[..1],
            &[(13, 10, -30)],
            17,
            "ScaleUpLimit",
        ),
        (
            "rounded up",
            1,
            50,
            Max,
            &[policy(Percent, 1, 60)],
            &[],
            2,
            "ScaleUpLimit",
        ),
        ("within", 10, 12, Max, &both, &[], 12, "DesiredWithinRange"),
        (
            "down by pods",
            10,
            1,
            Max,
            &both[..1],
            &[],
            6,
            "ScaleDownLimit",
        ),
        (
            "down by percent",
            10,
            1,
            Max,
            &both[1..],
            &[],
            5,
            "ScaleDownLimit",
        ),
        (
            "down by the larger",
            10,
            1,
            Max,
            &both,
            &[],
            5,
            "ScaleDownLimit",
        ),
        (
            "down by the smaller",
            10,
            1,
            Min,
            &both,
            &[],
            6,
            "ScaleDownLimit",
        ),
        (
            "down disabled",
            10,
            1,
            Disabled,
            &both,
            &[],
            10,
            "ScaleDownLimit",
        ),
        (
            "down to the bound",
            10,
            1,
            Max,
            &[policy(Percent, 100, 60)],
            &[],
            2,
            "TooFewReplicas",
        ),
        (
            "removed already",
            10,
            1,
            Max,
            &both[..1],
            &[(12, 10, -30)],
            8,
            "ScaleDownLimit",
        ),
    ] {
        let mut history = ScalingHistory::default();
        for (from, to, seconds) in changes {
            history.record_change(*from, *to, at(-3600), at(*seconds));
        }
        let rules = rules(select, policies);
        let bounds = ReplicaBounds { min: 2, max: 99 };
        let actual = limit_by_rules(current, desired, bounds, (&rules, &rules), &history, at(0));
        assert_eq!(
            (actual.replicas, actual.reason),
            (replicas, reason),
            "{name}"
        );
    }
}

// proves: FHP-stabilization
#[test]
fn recommendations_are_stabilized() {
    let windows = |up, down| StabilizationWindows {
        up: SignedDuration::from_secs(up),
        down: SignedDuration::from_secs(down),
    };
    for (name, current, desired, (up, down), earlier, expected) in [
        ("no window", 5, 3, (0, 0), &[(-10, 8)][..], 3),
        (
            "down to the highest",
            9,
            3,
            (0, 60),
            &[(-10, 8), (-20, 6)],
            8,
        ),
        ("not up by it", 5, 3, (0, 60), &[(-10, 8)], 5),
        ("an old one", 9, 3, (0, 60), &[(-61, 8)], 3),
        ("up to the lowest", 2, 9, (60, 0), &[(-10, 4), (-20, 6)], 4),
        ("not down by it", 5, 9, (60, 0), &[(-10, 4)], 5),
        ("both windows", 5, 9, (60, 60), &[(-10, 4)], 5),
    ] {
        let mut history = ScalingHistory::default();
        for (seconds, replicas) in earlier.iter().rev() {
            history.highest_recommendation(*replicas, SignedDuration::from_hours(1), at(*seconds));
        }
        let recommendation = history.stabilize(current, desired, windows(up, down), at(0));
        assert_eq!(recommendation, expected, "{name}");
    }
    let mut history = ScalingHistory::default();
    history.record_initial(7, at(0));
    history.record_initial(9, at(1));
    let window = SignedDuration::from_secs(300);
    assert_eq!(history.highest_recommendation(3, window, at(300)), 7);
    assert_eq!(history.highest_recommendation(2, window, at(301)), 3);
}
