//! Properties of stabilization and scaling policies: over any sequence of recommendations they do what a
//! model does that forgets nothing.

use jiff::{SignedDuration, Timestamp};
use machinery::time::rfc3339_seconds;
use proptest::prelude::*;
use serde_json::Value;

use super::limits::{at, policy, rules};
use crate::federated_hpa::behavior::{
    ScalingBehavior, ScalingPolicy, ScalingPolicyType, ScalingRules, SelectPolicy,
};
use crate::federated_hpa::decision::{HpaConditions, normalize, record_change};
use crate::federated_hpa::scaling_history::{ScalingHistory, StabilizationWindows};
use crate::federated_hpa::scaling_limits::{ReplicaBounds, limit_by_rules};
use crate::federated_hpa::settings::FederatedHpaSettings;
use crate::federated_hpa::spec::FederatedHpaSpec;

fn policies() -> impl Strategy<Value = Vec<ScalingPolicy>> {
    let policy = (any::<bool>(), 1..150_i32, 1..1800_i32).prop_map(|(pods, value, period)| {
        let kind = match pods {
            true => ScalingPolicyType::Pods,
            false => ScalingPolicyType::Percent,
        };
        policy(kind, value, period)
    });
    prop::collection::vec(policy, 1..4)
}

fn scaling_rules() -> impl Strategy<Value = ScalingRules> {
    let select = prop_oneof![
        3 => Just(SelectPolicy::Max),
        3 => Just(SelectPolicy::Min),
        1 => Just(SelectPolicy::Disabled),
    ];
    let window = prop::option::of(0..900_i32);
    (select, policies(), window).prop_map(|(select, policies, window)| ScalingRules {
        stabilization_window_seconds: window,
        ..rules(select, &policies)
    })
}

fn behavior() -> impl Strategy<Value = ScalingBehavior> {
    (scaling_rules(), scaling_rules()).prop_map(|(scale_up, scale_down)| ScalingBehavior {
        scale_up,
        scale_down,
    })
}

/// Seconds since the step before, and the desired replicas.
fn steps() -> impl Strategy<Value = Vec<(i64, i32)>> {
    prop::collection::vec((1..400_i64, 0..200_i32), 1..40)
}

/// The replicas at all times.
struct Timeline {
    first: i32,
    /// In their order; the replicas from that second on.
    changes: Vec<(i64, i32)>,
}

impl Timeline {
    fn replicas_at(&self, second: i64) -> i32 {
        let before = self.changes.iter().rfind(|(at, _)| *at <= second);
        before.map_or(self.first, |(_, replicas)| *replicas)
    }

    /// The replicas that the rules of a direction allow at most, or at least.
    fn allowed(&self, rules: &ScalingRules, now: i64, up: bool) -> i64 {
        let current = i64::from(self.replicas_at(now));
        let allowed = rules.policies.iter().map(|policy| {
            let before = self.replicas_at(now - i64::from(policy.period_seconds));
            let share = f64::from(before) * f64::from(policy.value) / 100.0;
            let by = match policy.kind {
                ScalingPolicyType::Pods => f64::from(policy.value),
                ScalingPolicyType::Percent => share,
            };
            match up {
                true => (f64::from(before) + by - 1e-6).ceil() as i64,
                false => (f64::from(before) - by + 1e-6).floor() as i64,
            }
        });
        let selected = match (rules.select_policy, up) {
            (SelectPolicy::Disabled, _) => return current,
            (SelectPolicy::Max, true) | (SelectPolicy::Min, false) => allowed.max(),
            (SelectPolicy::Min, true) | (SelectPolicy::Max, false) => allowed.min(),
        };
        match up {
            true => selected.unwrap().max(current),
            false => selected.unwrap().min(current),
        }
    }
}

fn windows(up: i64, down: i64) -> StabilizationWindows {
    StabilizationWindows {
        up: SignedDuration::from_secs(up),
        down: SignedDuration::from_secs(down),
    }
}

proptest! {
    // proves: FHP-policies
    #[test]
    fn changes_stay_within_the_policies_of_their_periods(
        behavior in behavior(),
        first in 0..200_i32,
        steps in steps(),
    ) {
        let mut timeline = Timeline { first, changes: Vec::new() };
        let mut history = ScalingHistory::default();
        let bounds = ReplicaBounds { min: 0, max: i32::MAX };
        let rules = (&behavior.scale_up, &behavior.scale_down);
        let mut second = 0;
        for (pause, desired) in steps {
            second += pause;
            let current = timeline.replicas_at(second);
            let actual = limit_by_rules(current, desired, bounds, rules, &history, at(second));
            let proposal = i64::from(desired);
            let expected = match desired >= current {
                true => proposal.min(timeline.allowed(rules.0, second, true)),
                false => proposal.max(timeline.allowed(rules.1, second, false)),
            };
            // A percentage of a few replicas may be off by the rounding of floating point numbers.
            let difference = (i64::from(actual.replicas) - expected).abs();
            prop_assert!(difference <= 1, "{actual:?} instead of {expected} from {current}");
            let (low, high) = (current.min(desired), current.max(desired));
            prop_assert!((low..=high).contains(&actual.replicas), "{actual:?}");
            prop_assert_eq!(actual.replicas == desired, actual.reason == "DesiredWithinRange");
            if actual.replicas != current {
                let change = (current, actual.replicas);
                record_change(Some(&behavior), change, &mut history, at(second));
                timeline.changes.push((second, actual.replicas));
            }
        }
    }

    // proves: FHP-stabilization
    #[test]
    fn stabilized_replicas_follow_the_windows(
        first in 0..50_i32,
        steps in steps(),
        up in 0..900_i64,
        down in 0..900_i64,
    ) {
        let (mut history, mut all) = (ScalingHistory::default(), Vec::new());
        let (mut second, mut current) = (0, first);
        for (pause, desired) in steps {
            second += pause;
            let recommendation = history.stabilize(current, desired, windows(up, down), at(second));
            all.push((second, desired));
            let within = |window: i64| {
                let recent = all.iter().filter(move |(at, _)| *at == second || *at > second - window);
                recent.map(|(_, replicas)| *replicas)
            };
            let lowest = within(up).min().unwrap();
            let highest = within(down).max().unwrap();
            match recommendation.cmp(&current) {
                std::cmp::Ordering::Greater => prop_assert_eq!(recommendation, lowest),
                std::cmp::Ordering::Less => prop_assert_eq!(recommendation, highest),
                std::cmp::Ordering::Equal => {
                    prop_assert!(lowest <= current && highest >= current);
                }
            }
            let (low, high) = (current.min(desired), current.max(desired));
            prop_assert!((low..=high).contains(&recommendation), "{recommendation} turned around");
            current = recommendation;
        }
    }

    // proves: FHP-stabilization
    #[test]
    fn without_a_behavior_the_highest_recommendation_of_the_window_counts(
        steps in steps(),
        window in 0..900_i64,
    ) {
        let (mut history, mut all, mut second) = (ScalingHistory::default(), Vec::new(), 0);
        for (pause, desired) in steps {
            second += pause;
            all.push((second, desired));
            let length = SignedDuration::from_secs(window);
            let recommendation = history.highest_recommendation(desired, length, at(second));
            let recent = all.iter().filter(|(at, _)| *at >= second - window);
            prop_assert_eq!(recommendation, recent.map(|(_, replicas)| *replicas).max().unwrap());
        }
    }

    // proves: FHP-stabilization, FHP-policies, FHP-bounds
    #[test]
    fn replicas_stay_within_the_bounds_and_come_to_rest(
        behavior in prop::option::of(behavior()),
        (min, extra, first) in (1..50_i32, 0..150_i32, 0..200_i32),
        steps in steps(),
        last in 0..200_i32,
    ) {
        let max = min + extra;
        let spec = FederatedHpaSpec {
            min_replicas: Some(min),
            max_replicas: max,
            behavior,
            ..FederatedHpaSpec::default()
        };
        let mut scaling = Scaling::new(&spec, first.clamp(min, max));
        for (pause, desired) in steps {
            let replicas = scaling.step(pause, desired);
            prop_assert!((min..=max).contains(&replicas), "{replicas} of {min} to {max}");
        }
        // Longer than every window and period.
        scaling.step(1800, last);
        let before = scaling.current;
        for _ in 0..400 {
            scaling.step(1800, last);
        }
        let goal = last.clamp(min, max);
        let rules = spec.behavior.as_ref().map(|b| match goal > before {
            true => b.scale_up.select_policy,
            false => b.scale_down.select_policy,
        });
        let is_disabled = rules == Some(SelectPolicy::Disabled);
        prop_assert_eq!(scaling.current, if is_disabled { before } else { goal });
    }
}

/// An autoscaler whose desired replicas are given.
struct Scaling<'a> {
    spec: &'a FederatedHpaSpec,
    current: i32,
    now: Timestamp,
    history: ScalingHistory,
    conditions: Value,
}

impl<'a> Scaling<'a> {
    fn new(spec: &'a FederatedHpaSpec, current: i32) -> Self {
        let mut history = ScalingHistory::default();
        history.record_initial(current, at(0));
        Self {
            spec,
            current,
            now: at(0),
            history,
            conditions: Value::Null,
        }
    }

    fn step(&mut self, pause: i64, desired: i32) -> i32 {
        self.now += SignedDuration::from_secs(pause);
        let mut writer = HpaConditions {
            conditions: &mut self.conditions,
            now: self.now,
        };
        let (settings, replicas) = (FederatedHpaSettings::default(), (self.current, desired));
        let replica_count = normalize(
            self.spec,
            replicas,
            &settings,
            &mut self.history,
            &mut writer,
        );
        if replica_count != self.current {
            let behavior = self.spec.behavior.as_ref();
            let change = (self.current, replica_count);
            record_change(behavior, change, &mut self.history, self.now);
        }
        self.current = replica_count;
        self.check_conditions();
        replica_count
    }

    /// Both conditions are there, and none changed later than now.
    fn check_conditions(&self) {
        let conditions = self.conditions.as_array().unwrap();
        let kinds: Vec<_> = conditions
            .iter()
            .map(|c| c["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["AbleToScale", "ScalingLimited"]);
        let now = rfc3339_seconds(self.now);
        let times = conditions
            .iter()
            .map(|c| c["lastTransitionTime"].as_str().unwrap());
        assert!(
            times.into_iter().all(|time| time <= &*now),
            "{conditions:?}"
        );
    }
}
