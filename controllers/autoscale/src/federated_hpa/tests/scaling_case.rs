//! The cases of Kubernetes' `horizontal_test.go` about stabilization and scaling policies, as tables of text.

use jiff::{SignedDuration, Timestamp};

use super::limits::{at, policy, rules};
use crate::federated_hpa::behavior::{
    ScalingBehavior, ScalingPolicy, ScalingPolicyType, ScalingRules, SelectPolicy,
};
use crate::federated_hpa::decision::{BoundsDecision, decide_by_bounds, record_change};
use crate::federated_hpa::scaling_history::{ScalingHistory, StabilizationWindows};
use crate::federated_hpa::scaling_limits::{ReplicaBounds, limit_by_rules};

/// Current and desired replicas, bounds; the rules of the direction, replicas added and removed before;
/// the expected replicas and reason. Rules are `PODS/SECONDS` and `PERCENT%/SECONDS`; `-` is the default.
/// Changes are spread evenly over the seconds behind `@`.
const POLICIES: &str = "
5    7    3   8    -                 -              -              7   DesiredWithinRange
3    1    2   8    -                 -              -              2   TooFewReplicas
1    0    0   10   -                 -              -              0   DesiredWithinRange
20   1000 1   10   -                 -              -              10  TooManyReplicas
100  1000 100 150  -                 -              -              150 TooManyReplicas
3    1000 1   2000 1%/60             -              -              4   ScaleUpLimit
1000 3    3   2000 20/60             -              -              980 ScaleDownLimit
10   50   1   1000 -                 -              -              20  ScaleUpLimit
10   500  1   1000 100/60,100%/60    -              -              110 ScaleUpLimit
10   500  1   1000 2/60,100%/60      -              -              20  ScaleUpLimit
10   50   1   1000 100/60            -              -              50  DesiredWithinRange
10   50   1   1000 10000/60          -              -              50  DesiredWithinRange
10   50   1   1000 30/60             -              -              40  ScaleUpLimit
10   50   1   1000 200%/60           -              -              30  ScaleUpLimit
100  2    1   1000 20/60,1%/60       -              -              80  ScaleDownLimit
100  2    1   1000 2/60,1%/60        -              -              98  ScaleDownLimit
10   0    1   1000 100/60            -              -              1   TooFewReplicas
10   2    5   1000 100%/60           -              -              5   TooFewReplicas
10   2    1   1000 5/60              -              -              5   ScaleDownLimit
10   5    1   1000 50%/60            -              -              5   DesiredWithinRange
100  500  1   200  300/60            1,5,9@120      -              200 TooManyReplicas
100  500  1   200  10000%/60         1,5,9@120      -              200 TooManyReplicas
100  500  1   1000 5/120             1,5,9@120      -              100 ScaleUpLimit
100  500  1   1000 150/120           1,5,9@120      -              235 ScaleUpLimit
100  500  1   1000 200%/120          1,5,9@120      -              255 ScaleUpLimit
6    24   1   1000 300%/300          4@120          2@120          16  ScaleUpLimit
10   5    1   1000 -                 -              1,5,9@120      5   DesiredWithinRange
100  0    1   1000 115/120           -              1,5,9@120      1   TooFewReplicas
100  0    5   1000 130/120           -              1,5,9@120      5   TooFewReplicas
100  2    5   1000 100%/120          -              1,5,9@120      5   TooFewReplicas
100  2    1   1000 5/120             -              1,5,9@120      100 ScaleDownLimit
100  0    1   1000 50%/120           -              2,4,6@120      56  ScaleDownLimit
10   1    1   1000 50%/180           2@120          4@120          6   ScaleDownLimit
100  0    1   1000 10%/120           -              10,10,10@120   100 ScaleDownLimit
10   5    1   1000 1000%/120         -              10,10,10@120   5   DesiredWithinRange
100  200  1   1000 1000/60           8,12,9,11@120  -              200 DesiredWithinRange
100  200  1   1000 1000/120,100%/60  8,12,9,11@120  -              200 DesiredWithinRange
100  200  1   1000 1000/30,100%/60   8,12,9,11@120  -              200 DesiredWithinRange
100  5    1   1000 1000/60           -              8,12,9,11@120  5   DesiredWithinRange
100  5    1   1000 1000/120,100%/60  -              8,12,9,11@120  5   DesiredWithinRange
100  5    1   1000 1000/30,100%/60   -              8,12,9,11@120  5   DesiredWithinRange
";

fn parse_policies(text: &str, default: &str) -> Vec<ScalingPolicy> {
    let text = if text == "-" { default } else { text };
    let policies = text.split(',').map(|text| {
        let (value, seconds) = text.split_once('/').unwrap();
        let (kind, value) = match value.strip_suffix('%') {
            Some(percent) => (ScalingPolicyType::Percent, percent),
            None => (ScalingPolicyType::Pods, value),
        };
        policy(kind, value.parse().unwrap(), seconds.parse().unwrap())
    });
    policies.collect()
}

/// The changes and the seconds at which they were made.
fn parse_changes(text: &str) -> Vec<(i32, i64)> {
    let Some((changes, period)) = text.split_once('@') else {
        return Vec::new();
    };
    let changes: Vec<i32> = changes.split(',').map(|n| n.parse().unwrap()).collect();
    let segment = period.parse::<i64>().unwrap() / changes.len() as i64;
    let middle = |i: usize| segment * (i as i64 - changes.len() as i64) + segment / 2;
    let spread = changes.iter().enumerate();
    spread.map(|(i, change)| (*change, middle(i))).collect()
}

// proves: FHP-policies
#[test]
fn policies_are_those_of_kubernetes() {
    for line in POLICIES.lines().filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| columns[i].parse::<i32>().unwrap();
        let up = rules(
            SelectPolicy::Max,
            &parse_policies(columns[4], "4/15,100%/15"),
        );
        let down = rules(SelectPolicy::Max, &parse_policies(columns[4], "100%/15"));
        let mut history = ScalingHistory::default();
        for (change, seconds) in parse_changes(columns[5]) {
            history.record_change(0, change, at(-3600), at(seconds));
        }
        for (change, seconds) in parse_changes(columns[6]) {
            history.record_change(change, 0, at(-3600), at(seconds));
        }
        let bounds = ReplicaBounds {
            min: number(2),
            max: number(3),
        };
        let (current, desired) = (number(0), number(1));
        let actual = limit_by_rules(current, desired, bounds, (&up, &down), &history, at(0));
        assert_eq!(
            (actual.replicas, actual.reason),
            (number(7), columns[8]),
            "{line}"
        );
    }
    let both = rules(SelectPolicy::Min, &parse_policies("2/60,50%/60", ""));
    let bounds = ReplicaBounds { min: 0, max: 100 };
    for (current, desired, expected) in [(1, 50, 2), (5, 0, 3)] {
        let history = ScalingHistory::default();
        let actual = limit_by_rules(current, desired, bounds, (&both, &both), &history, at(0));
        assert_eq!(
            actual.replicas, expected,
            "the smallest change of {current}"
        );
    }
}

/// Changes of before by seconds, and what the last minute counts of them.
const COUNTED: &[(&[(i32, i64)], i64)] = &[
    (&[], 0),
    (&[(7, -61)], 0),
    (&[(7, -58)], 7),
    (&[(7, -61), (6, -59)], 6),
    (&[(9, -61), (7, -61), (6, -59), (8, -29)], 14),
    (&[(6, -59), (7, -58)], 13),
];

// proves: FHP-policies
#[test]
fn changes_count_for_their_period() {
    let minute_ago = at(-60);
    for (changes, counted) in COUNTED {
        let mut history = ScalingHistory::default();
        for (change, seconds) in *changes {
            history.record_change(10, 10 + change, at(-3600), at(*seconds));
            history.record_change(10 + change, 10, at(-3600), at(*seconds));
        }
        assert_eq!(history.added_after(minute_ago), *counted, "{changes:?}");
        assert_eq!(history.removed_after(minute_ago), *counted, "{changes:?}");
    }
    let mut history = ScalingHistory::default();
    record_change(None, (10, 15), &mut history, at(0));
    assert_eq!(history.added_after(minute_ago), 0, "no policy counts it");
    // The policies of the other direction count a change for their own, longer period.
    let behavior = ScalingBehavior {
        scale_up: rules(SelectPolicy::Max, &parse_policies("4/15", "")),
        scale_down: rules(SelectPolicy::Max, &parse_policies("4/600", "")),
    };
    record_change(Some(&behavior), (10, 14), &mut history, at(0));
    record_change(Some(&behavior), (14, 18), &mut history, at(300));
    assert_eq!(history.added_after(at(-1)), 8);
}

/// Recommendations of before by minutes, current and desired replicas, the windows for adding and
/// removing in seconds, and the expected replicas.
type WindowCase = (&'static [(i32, i64)], i32, i32, (i64, i64), i32);

const WINDOWS: &[WindowCase] = &[
    (&[], 100, 5, (0, 0), 5),
    (&[(4, -2), (5, -1)], 100, 3, (0, 180), 5),
    (&[(4, -2), (5, -1)], 1, 7, (300, 0), 4),
    (&[(1, -2), (2, -1)], 100, 3, (300, 0), 3),
    (&[(4, -2), (5, -1)], 1, 3, (0, 300), 3),
    (&[(10, -10), (9, -9)], 100, 3, (0, 0), 3),
    (&[(10, -10), (9, -9)], 1, 100, (0, 0), 100),
    (&[(10, -10), (9, -9), (5, -2), (4, -1)], 100, 3, (0, 180), 5),
    (
        &[(10, -100), (9, -3), (5, -2), (6, -1)],
        1,
        100,
        (300, 0),
        5,
    ),
    // A window for adding does not add when less is recommended, nor the other way around.
    (&[(2, -100), (3, -3)], 2, 1, (300, 300), 2),
    (&[(2, -100), (1, -3)], 2, 3, (300, 300), 2),
];

fn recommended(earlier: &[(i32, i64)]) -> ScalingHistory {
    let mut history = ScalingHistory::default();
    for (replicas, minutes) in earlier {
        history.highest_recommendation(*replicas, SignedDuration::from_hours(2), at(minutes * 60));
    }
    history
}

// proves: FHP-stabilization
#[test]
fn windows_are_those_of_kubernetes() {
    for case in WINDOWS {
        let (earlier, current, desired, (up, down), expected) = *case;
        let windows = StabilizationWindows {
            up: SignedDuration::from_secs(up),
            down: SignedDuration::from_secs(down),
        };
        let recommendation = recommended(earlier).stabilize(current, desired, windows, at(0));
        assert_eq!(recommendation, expected, "{case:?}");
    }
    let window = SignedDuration::from_mins(5);
    let now: Timestamp = at(0);
    for (earlier, expected) in [
        (&[][..], 3),
        (&[(4, -2), (5, -1)], 5),
        (&[(1, -2), (2, -1)], 3),
        (&[(10, -10), (9, -9)], 3),
        (&[(10, -10), (9, -9), (5, -2), (4, -1)], 5),
        (&[(10, -10), (4, -1)], 4),
    ] {
        let recommendation = recommended(earlier).highest_recommendation(3, window, now);
        assert_eq!(recommendation, expected, "{earlier:?} without a behavior");
    }
}

// proves: FHP-bounds
#[test]
fn bounds_decide_before_metrics() {
    let above = "Current number of replicas above Spec.MaxReplicas";
    let below = "Current number of replicas below Spec.MinReplicas";
    for (min, max, members, current, expected) in [
        (3, 5, 0, 0, BoundsDecision::Disabled),
        (0, 5, 0, 0, BoundsDecision::ByMetrics),
        (3, 5, 10, 10, BoundsDecision::Rescale(5, above)),
        (3, 5, 2, 2, BoundsDecision::Rescale(3, below)),
        (2, 6, 1, 1, BoundsDecision::Rescale(2, below)),
        (2, 5, 6, 6, BoundsDecision::Rescale(5, above)),
        // The members run more during a rolling update.
        (1, 8, 5, 4, BoundsDecision::ByMetrics),
    ] {
        let decision = decide_by_bounds(ReplicaBounds { min, max }, members, current);
        assert_eq!(decision, expected);
    }
}

// proves: FHP-policies
#[test]
fn rules_without_policies_change_nothing() {
    // Admission gives policies to every autoscaler.
    let (none, history) = (ScalingRules::default(), ScalingHistory::default());
    let bounds = ReplicaBounds { min: 0, max: 100 };
    let actual = limit_by_rules(5, 9, bounds, (&none, &none), &history, at(0));
    assert_eq!(actual.replicas, 5);
}
