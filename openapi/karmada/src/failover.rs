//! Failover: the `FailoverBehavior` of a policy, eviction tasks in the spec of a binding,
//! and the annotations of automatic failover, which Karmada does not have.
//!
//! Sources: `pkg/apis/policy/v1alpha1/propagation_types.go`,
//! `pkg/apis/work/v1alpha2/binding_types_helper.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::binding::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};
use super::well_known_keys::{FAILOVER, FAILOVER_AFTER, FAILOVER_AUTO};

pub use super::purge_mode::{PURGE_MODE_DIRECTLY, PURGE_MODE_GRACEFULLY, PURGE_MODE_NEVER};

/// How long a cluster may be not Ready, if the policy does not say.
const DEFAULT_FAILOVER_DELAY: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FailoverBehavior {
    pub application: Option<ApplicationFailoverBehavior>,
    pub cluster: Option<ClusterFailoverBehavior>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationFailoverBehavior {
    pub decision_conditions: DecisionConditions,
    /// `Directly`, `Gracefully` or `Never`.
    pub purge_mode: String,
    pub grace_period_seconds: Option<i64>,
    pub state_preservation: Option<StatePreservation>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionConditions {
    pub toleration_seconds: i64,
}

impl Default for DecisionConditions {
    fn default() -> Self {
        Self {
            toleration_seconds: 300,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFailoverBehavior {
    /// `Directly` or `Gracefully`.
    pub purge_mode: String,
    pub state_preservation: Option<StatePreservation>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StatePreservation {
    pub rules: Vec<StatePreservationRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatePreservationRule {
    pub alias_label_name: String,
    /// The path, relative to the status.
    pub json_path: String,
}

impl ResourceBindingSpec {
    /// The failover behavior that its policy declares; the default if it is malformed.
    pub fn failover_behavior(&self) -> FailoverBehavior {
        let declared = self.failover.as_ref();
        declared
            .and_then(|value| FailoverBehavior::deserialize(value).ok())
            .unwrap_or_default()
    }

    pub fn is_evicting(&self, cluster: &str) -> bool {
        let tasks = &self.graceful_eviction_tasks;
        tasks.iter().any(|t| t.from_cluster == cluster)
    }

    /// Removes a cluster from the targets and adds the eviction task, unless the cluster has
    /// one already (`GracefulEvictCluster`). Returns whether the cluster was a target.
    pub fn evict(&mut self, mut task: GracefulEvictionTask) -> bool {
        let is_evicted = |t: &TargetCluster| t.name == task.from_cluster;
        let Some(index) = self.clusters.iter().position(is_evicted) else {
            return false;
        };
        let evicted = self.clusters.remove(index);
        if !self.is_evicting(&evicted.name) {
            task.replicas = (evicted.replicas > 0).then_some(evicted.replicas);
            self.graceful_eviction_tasks.push(task);
        }
        true
    }
}

/// An invalid annotation of a policy: its key, its value, and why it is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicyAnnotation {
    pub key: &'static str,
    pub value: String,
    pub reason: String,
}

/// The time that a cluster must be not Ready before a policy evicts its resources automatically;
/// `None`: never.
pub fn automatic_failover_delay(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<Duration>, InvalidPolicyAnnotation> {
    let invalid = |key, value: &str, message: &str| InvalidPolicyAnnotation {
        key,
        value: value.to_owned(),
        reason: message.to_owned(),
    };
    let after = match annotations.get(FAILOVER_AFTER) {
        None => DEFAULT_FAILOVER_DELAY,
        Some(text) => machinery::duration::parse(text)
            .map_err(|message| invalid(FAILOVER_AFTER, text, &message))?,
    };
    match annotations.get(FAILOVER).map(String::as_str) {
        None => Ok(None),
        Some(FAILOVER_AUTO) => Ok(Some(after)),
        Some(other) => Err(invalid(FAILOVER, other, "the only value is \"auto\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(value: Value) -> ResourceBindingSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_eviction_moves_a_target_to_the_tasks() {
        let check = |before: Value, changed: bool, clusters: Value, tasks: Value| {
            let mut spec = spec(before);
            let task = GracefulEvictionTask {
                from_cluster: "a".into(),
                reason: "r".into(),
                producer: "p".into(),
                ..GracefulEvictionTask::default()
            };
            assert_eq!(spec.evict(task), changed);
            assert_eq!(json!(spec.clusters), clusters);
            assert_eq!(json!(spec.graceful_eviction_tasks), tasks);
        };
        let task = json!({"fromCluster": "a", "reason": "r", "producer": "p"});
        let older = json!({"fromCluster": "a", "reason": "o", "producer": "p", "purgeMode": "Never", "creationTimestamp": "t"});
        let (a, b) = (
            json!({"name": "a", "replicas": 2}),
            json!({"name": "b", "replicas": 1}),
        );
        let mut with_replicas = task.clone();
        with_replicas["replicas"] = 2.into();
        check(json!({"clusters": [b]}), false, json!([b]), json!([]));
        check(
            json!({"clusters": [a, b]}),
            true,
            json!([b]),
            json!([with_replicas]),
        );
        check(
            json!({"clusters": [{"name": "a"}]}),
            true,
            json!([]),
            json!([task]),
        );
        check(
            json!({"clusters": [a, b], "gracefulEvictionTasks": [older]}),
            true,
            json!([b]),
            json!([older]),
        );
    }

    #[test]
    fn annotations_are_parsed_or_rejected() {
        let check = |all: &[(&str, &str)], expected: Result<Option<u64>, &str>| {
            let pairs = all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let actual = automatic_failover_delay(&pairs.collect());
            let actual = actual.map(|after| after.map(|d| d.as_secs()));
            assert_eq!(actual.map_err(|invalid| invalid.key), expected, "{all:?}");
        };
        check(&[], Ok(None));
        check(&[(FAILOVER, "auto")], Ok(Some(300)));
        check(
            &[(FAILOVER, "auto"), (FAILOVER_AFTER, "1m30s")],
            Ok(Some(90)),
        );
        check(&[(FAILOVER_AFTER, "30s")], Ok(None));
        check(&[(FAILOVER, "Auto")], Err(FAILOVER));
        check(&[(FAILOVER_AFTER, "soon")], Err(FAILOVER_AFTER));
        check(
            &[(FAILOVER, "auto"), (FAILOVER_AFTER, "-5m")],
            Err(FAILOVER_AFTER),
        );
    }
}
