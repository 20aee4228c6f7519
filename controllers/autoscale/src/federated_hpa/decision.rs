//! Decides about the replicas of a scale target, and what the status says about it.

use jiff::{SignedDuration, Timestamp};
use machinery::conditions::set_json_condition;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use super::behavior::ScalingBehavior;
use super::scaling_history::{ScalingHistory, StabilizationWindows};
use super::scaling_limits::{ReplicaBounds, limit_by_default, limit_by_rules};
use super::settings::FederatedHpaSettings;
use super::spec::FederatedHpaSpec;

/// Sets conditions with the times of their transitions.
pub(super) struct HpaConditions<'a> {
    pub(super) conditions: &'a mut Value,
    pub(super) now: Timestamp,
}

impl HpaConditions<'_> {
    pub(super) fn set(&mut self, kind: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        let condition = json!({"type": kind, "status": status, "reason": reason,
            "message": message, "lastTransitionTime": rfc3339_seconds(self.now)});
        set_json_condition(self.conditions, condition);
    }
}

/// The recommendation that follows from the bounds alone, before any metric is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoundsDecision {
    /// The target has no replicas, so that it is not scaled.
    Disabled,
    /// Replicas are outside of the bounds: the nearest bound and the reason of the event.
    Rescale(i32, &'static str),
    /// Metrics decide.
    ByMetrics,
}

pub(super) fn bounds_of(spec: &FederatedHpaSpec) -> ReplicaBounds {
    ReplicaBounds {
        min: spec.min_replicas.unwrap_or(1),
        max: spec.max_replicas,
    }
}

/// `member_replicas` are those that the members should have, `current` those of the template.
pub(super) fn decide_by_bounds(
    bounds: ReplicaBounds,
    member_replicas: i32,
    current: i32,
) -> BoundsDecision {
    if member_replicas == 0 && bounds.min != 0 {
        BoundsDecision::Disabled
    } else if current > bounds.max {
        let reason = "Current number of replicas above Spec.MaxReplicas";
        BoundsDecision::Rescale(bounds.max, reason)
    } else if current < bounds.min {
        let reason = "Current number of replicas below Spec.MinReplicas";
        BoundsDecision::Rescale(bounds.min, reason)
    } else {
        BoundsDecision::ByMetrics
    }
}

/// Stabilizes and limits what the metrics ask for, and records it. Sets the conditions `AbleToScale`
/// and `ScalingLimited`.
pub(super) fn normalize(
    spec: &FederatedHpaSpec,
    (current, desired): (i32, i32),
    settings: &FederatedHpaSettings,
    history: &mut ScalingHistory,
    writer: &mut HpaConditions<'_>,
) -> i32 {
    let (bounds, now) = (bounds_of(spec), writer.now);
    let (stabilized, limited) = match &spec.behavior {
        None => {
            let window = settings.downscale_stabilization;
            let stabilized = history.highest_recommendation(desired, window, now);
            (stabilized, limit_by_default(current, stabilized, bounds))
        }
        Some(behavior) => {
            let windows = windows_of(behavior, settings);
            let stabilized = history.stabilize(current, desired, windows, now);
            let rules = (&behavior.scale_up, &behavior.scale_down);
            let limited = limit_by_rules(current, stabilized, bounds, rules, history, now);
            (stabilized, limited)
        }
    };
    let (reason, message) = if stabilized == desired {
        ("ReadyForNewScale", "recommended size matches current size")
    } else if spec.behavior.is_some() && desired >= current {
        (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        )
    } else {
        (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        )
    };
    writer.set("AbleToScale", true, reason, message);
    let is_limited = limited.replicas != stabilized;
    writer.set(
        "ScalingLimited",
        is_limited,
        limited.reason,
        limited.message,
    );
    limited.replicas
}

fn windows_of(behavior: &ScalingBehavior, settings: &FederatedHpaSettings) -> StabilizationWindows {
    let seconds = |seconds: i32| SignedDuration::from_secs(seconds.into());
    let (up, down) = (&behavior.scale_up, &behavior.scale_down);
    StabilizationWindows {
        up: seconds(up.stabilization_window_seconds.unwrap_or(0)),
        down: down
            .stabilization_window_seconds
            .map_or(settings.downscale_stabilization, seconds),
    }
}

/// Records a change of replicas for the policies that count it, which are those of both directions.
pub(super) fn record_change(
    behavior: Option<&ScalingBehavior>,
    (from, to): (i32, i32),
    history: &mut ScalingHistory,
    now: Timestamp,
) {
    let Some(behavior) = behavior else { return };
    let (up, down) = (&behavior.scale_up, &behavior.scale_down);
    let longest = up
        .longest_period_seconds()
        .max(down.longest_period_seconds());
    let period = SignedDuration::from_secs(longest.into());
    history.record_change(from, to, now - period, now);
}
