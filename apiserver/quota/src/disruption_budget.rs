//! The parts of PodDisruptionBudgets that eviction and the disruption controller share: the fields that
//! they read, which pods count as healthy, and the condition `DisruptionAllowed`
//! (`component-helpers/apps/poddisruptionbudget`).

use std::collections::BTreeMap;

use machinery::conditions::set_json_condition;
use machinery::{LabelSelector, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The condition that tells whether a disruption is allowed.
pub const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";
/// The condition's reason when the controller cannot compute the status.
pub const SYNC_FAILED: &str = "SyncFailed";

/// A PodDisruptionBudget without its metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    pub spec: PodDisruptionBudgetSpec,
    pub status: PodDisruptionBudgetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    selector: Value,
    /// A number or a percentage.
    pub min_available: Option<Value>,
    pub max_unavailable: Option<Value>,
    pub unhealthy_pod_eviction_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Pods whose eviction was allowed, and when.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disrupted_pods: BTreeMap<String, String>,
    pub disruptions_allowed: i64,
    pub current_healthy: i64,
    pub desired_healthy: i64,
    pub expected_pods: i64,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub conditions: Value,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

impl PodDisruptionBudgetSpec {
    /// The selector of the pods; a malformed one selects none.
    pub fn selector(&self) -> LabelSelector {
        LabelSelector::from_value(&self.selector).unwrap_or_else(|_| LabelSelector::nothing())
    }

    /// Whether the budget selects a pod of its namespace.
    pub fn selects(&self, pod: &Object) -> bool {
        self.selector().matches(|key| pod.meta().label(key))
    }
}

impl PodDisruptionBudgetStatus {
    /// The condition of a type.
    pub fn condition(&self, condition_type: &str) -> Option<&Value> {
        let mut conditions = self.conditions.as_array().into_iter().flatten();
        conditions.find(|condition| condition["type"] == condition_type)
    }

    /// Sets the condition `DisruptionAllowed` as the number of allowed disruptions implies.
    pub fn update_condition(&mut self, now: &str) {
        let (status, reason) = match self.disruptions_allowed > 0 {
            true => ("True", "SufficientPods"),
            false => ("False", "InsufficientPods"),
        };
        self.set_condition(status, reason, "", now);
    }

    /// Records that the status cannot be computed: no disruption is allowed.
    pub fn set_sync_failed(&mut self, message: &str, now: &str) {
        self.disruptions_allowed = 0;
        self.set_condition("False", SYNC_FAILED, message, now);
    }

    fn set_condition(&mut self, status: &str, reason: &str, message: &str, now: &str) {
        let mut condition = json!({"type": DISRUPTION_ALLOWED, "status": status,
            "lastTransitionTime": now, "reason": reason, "message": message});
        if self.observed_generation != 0 {
            condition["observedGeneration"] = self.observed_generation.into();
        }
        set_json_condition(&mut self.conditions, condition);
    }
}

/// The conditions of a pod, from which its health follows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodReadiness {
    status: PodConditions,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodConditions {
    conditions: Vec<PodCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    #[serde(rename = "type")]
    condition_type: String,
    status: String,
}

impl PodReadiness {
    /// Whether the pod is ready.
    pub fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|c| c.condition_type == "Ready" && c.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_follows_the_allowed_disruptions() {
        let mut status = PodDisruptionBudgetStatus {
            disruptions_allowed: 1,
            observed_generation: 2,
            ..PodDisruptionBudgetStatus::default()
        };
        let mut check = |allowed: i64, now: &str, expected: (&str, &str, &str)| {
            status.disruptions_allowed = allowed;
            status.update_condition(now);
            let condition = status.condition(DISRUPTION_ALLOWED).unwrap();
            let text = |field: &str| condition[field].as_str().unwrap().to_owned();
            let actual = (text("status"), text("reason"), text("lastTransitionTime"));
            let (status, reason, time) = expected;
            assert_eq!(actual, (status.into(), reason.into(), time.into()));
        };
        check(1, "t1", ("True", "SufficientPods", "t1"));
        check(2, "t2", ("True", "SufficientPods", "t1"));
        check(0, "t3", ("False", "InsufficientPods", "t3"));
        status.set_sync_failed("no owner", "t4");
        let condition = status.condition(DISRUPTION_ALLOWED).unwrap();
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!(SYNC_FAILED), &json!("no owner"))
        );
    }
}
