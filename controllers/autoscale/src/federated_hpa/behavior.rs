//! The part of a FederatedHPA's spec that says how fast replicas are added and removed.

use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScalingBehavior {
    pub(crate) scale_up: ScalingRules,
    pub(crate) scale_down: ScalingRules,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScalingRules {
    /// Absent: none when replicas are added, that of the controller when they are removed.
    pub(crate) stabilization_window_seconds: Option<i32>,
    pub(crate) select_policy: SelectPolicy,
    pub(crate) policies: Vec<ScalingPolicy>,
}

/// Which of several policies counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum SelectPolicy {
    /// The one that allows the largest change.
    #[default]
    Max,
    /// The one that allows the smallest change.
    Min,
    /// None: replicas are not changed in this direction.
    Disabled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScalingPolicy {
    #[serde(rename = "type")]
    pub(crate) kind: ScalingPolicyType,
    pub(crate) value: i32,
    pub(crate) period_seconds: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum ScalingPolicyType {
    Pods,
    Percent,
}

impl ScalingRules {
    /// The longest time that a change of replicas counts for a policy.
    pub(crate) fn longest_period_seconds(&self) -> i32 {
        let periods = self.policies.iter().map(|policy| policy.period_seconds);
        periods.max().unwrap_or(0)
    }
}
