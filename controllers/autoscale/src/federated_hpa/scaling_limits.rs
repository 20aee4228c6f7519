//! Limits how fast replicas are added and removed: by the rules of a behavior, or by the defaults of
//! an autoscaler without one.
//!
//! Source: `convertDesiredReplicasWithRules` and `convertDesiredReplicasWithBehaviorRate` of
//! Kubernetes' `pkg/controller/podautoscaler/horizontal.go`.

use jiff::{SignedDuration, Timestamp};

use super::behavior::{ScalingPolicy, ScalingPolicyType, ScalingRules, SelectPolicy};
use super::scaling_history::ScalingHistory;

/// Replicas within the limits, and why they are limited, as in the condition `ScalingLimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitedReplicas {
    pub(crate) replicas: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

const FASTER_UP: &str =
    "the desired replica count is increasing faster than the maximum scale rate";
const FASTER_DOWN: &str =
    "the desired replica count is decreasing faster than the maximum scale rate";
const TOO_MANY: &str = "the desired replica count is more than the maximum replica count";
const TOO_FEW: &str = "the desired replica count is less than the minimum replica count";

/// The bounds of an autoscaler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaBounds {
    pub(crate) min: i32,
    pub(crate) max: i32,
}

/// Without a behavior replicas at most double, or become four.
pub(crate) fn limit_by_default(
    current: i32,
    desired: i32,
    bounds: ReplicaBounds,
) -> LimitedReplicas {
    let fastest = current.saturating_mul(2).max(4);
    if desired < bounds.min {
        return limited(bounds.min, "TooFewReplicas", TOO_FEW);
    }
    let (most, reason, message) = match bounds.max > fastest {
        true => (fastest, "ScaleUpLimit", FASTER_UP),
        false => (bounds.max, "TooManyReplicas", TOO_MANY),
    };
    if desired > most {
        return limited(most, reason, message);
    }
    within_range(desired)
}

/// Limits by the rules of a behavior and the changes of their periods.
pub(crate) fn limit_by_rules(
    current: i32,
    desired: i32,
    bounds: ReplicaBounds,
    rules: (&ScalingRules, &ScalingRules),
    history: &ScalingHistory,
    now: Timestamp,
) -> LimitedReplicas {
    let (up, down) = rules;
    if desired > current {
        let fastest = scale_up_limit(current, up, history, now).max(current);
        let (most, reason, message) = match bounds.max > fastest {
            true => (fastest, "ScaleUpLimit", FASTER_UP),
            false => (bounds.max, "TooManyReplicas", TOO_MANY),
        };
        if desired > most {
            return limited(most, reason, message);
        }
    } else if desired < current {
        let fastest = scale_down_limit(current, down, history, now).min(current);
        let (least, reason, message) = match bounds.min < fastest {
            true => (fastest, "ScaleDownLimit", FASTER_DOWN),
            false => (bounds.min, "TooFewReplicas", TOO_FEW),
        };
        if desired < least {
            return limited(least, reason, message);
        }
    }
    within_range(desired)
}

fn limited(replicas: i32, reason: &'static str, message: &'static str) -> LimitedReplicas {
    LimitedReplicas {
        replicas,
        reason,
        message,
    }
}

fn within_range(replicas: i32) -> LimitedReplicas {
    let message = "the desired count is within the acceptable range";
    limited(replicas, "DesiredWithinRange", message)
}

/// Replicas at the start of a period that ends now.
fn replicas_before(
    period_seconds: i32,
    current: i32,
    history: &ScalingHistory,
    now: Timestamp,
) -> i64 {
    let start = now - SignedDuration::from_secs(period_seconds.into());
    i64::from(current) - history.added_after(start) + history.removed_after(start)
}

/// The replicas that each policy allows, given those before its period.
fn allowed_by_policies(
    current: i32,
    rules: &ScalingRules,
    history: &ScalingHistory,
    now: Timestamp,
    allowed: impl Fn(i64, &ScalingPolicy) -> i64,
) -> impl Iterator<Item = i64> {
    rules.policies.iter().map(move |policy| {
        let before = replicas_before(policy.period_seconds, current, history, now);
        allowed(before, policy)
    })
}

fn scale_up_limit(
    current: i32,
    rules: &ScalingRules,
    history: &ScalingHistory,
    now: Timestamp,
) -> i32 {
    let allowed = allowed_by_policies(current, rules, history, now, |before, policy| {
        let value = policy.value;
        match policy.kind {
            ScalingPolicyType::Pods => before.saturating_add(value.into()),
            // Rounded up: else a few replicas would never become more.
            ScalingPolicyType::Percent => {
                (before as f64 * (1.0 + f64::from(value) / 100.0)).ceil() as i64
            }
        }
    });
    let selected = match rules.select_policy {
        SelectPolicy::Disabled => return current,
        SelectPolicy::Min => allowed.min().unwrap_or(i64::MAX),
        SelectPolicy::Max => allowed.max().unwrap_or(i64::MIN),
    };
    saturated(selected)
}

fn scale_down_limit(
    current: i32,
    rules: &ScalingRules,
    history: &ScalingHistory,
    now: Timestamp,
) -> i32 {
    let allowed = allowed_by_policies(current, rules, history, now, |before, policy| {
        let value = policy.value;
        match policy.kind {
            ScalingPolicyType::Pods => before.saturating_sub(value.into()),
            ScalingPolicyType::Percent => (before as f64 * (1.0 - f64::from(value) / 100.0)) as i64,
        }
    });
    let selected = match rules.select_policy {
        SelectPolicy::Disabled => return current,
        // The least change leaves the most replicas.
        SelectPolicy::Min => allowed.max().unwrap_or(i64::MIN),
        SelectPolicy::Max => allowed.min().unwrap_or(i64::MAX),
    };
    saturated(selected)
}

fn saturated(replicas: i64) -> i32 {
    replicas.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}
