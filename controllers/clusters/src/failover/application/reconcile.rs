//! Decides which workloads have been unhealthy for too long, and builds their eviction
//! tasks. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use karmada_api::binding::GracefulEvictionTask;
use karmada_api::failover::{ApplicationFailoverBehavior, PURGE_MODE_GRACEFULLY, PURGE_MODE_NEVER};
use karmada_api::rollout::{ClusterRolloutStatus, RolloutStatus};
use karmada_api::{FeatureGates, KarmadaFeature, ResourceBinding};

use crate::failover::state_preservation::{StatePreservationError, preserved_labels};

/// Cluster → since when the workload is unhealthy there.
pub(super) type UnhealthySinceByCluster = BTreeMap<String, Timestamp>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnhealthyEvaluation {
    /// The updated times.
    pub(super) since: UnhealthySinceByCluster,
    pub(super) clusters_to_evict: Vec<String>,
    /// When the next of the other clusters exceeds its toleration.
    pub(super) next_deadline: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EvictionTaskError {
    #[error(transparent)]
    StatePreservation(#[from] StatePreservationError),
    #[error("GracefulEviction featureGate must be enabled when purgeMode is Gracefully")]
    GracefulEvictionDisabled,
}

/// The application failover of a binding, if it applies: dependencies are propagated and
/// a status was collected.
pub(super) fn application_failover(
    binding: &ResourceBinding,
) -> Option<ApplicationFailoverBehavior> {
    let application = binding.spec.failover_behavior().application?;
    let observed = !binding.status.aggregated_status.is_empty();
    (binding.spec.propagate_deps && observed).then_some(application)
}

/// Evaluates the health of a binding's workload in each cluster. The toleration starts
/// anew when the workload is healthy, its health is unknown, the cluster is no longer
/// a target, or its rollout changes it: that judges the change, and fails it at its deadline.
pub(super) fn evaluate_health(
    binding: &ResourceBinding,
    application: &ApplicationFailoverBehavior,
    rollout: Option<&RolloutStatus>,
    since: &UnhealthySinceByCluster,
    now: Timestamp,
) -> UnhealthyEvaluation {
    let tolerated = SignedDuration::from_secs(application.decision_conditions.toleration_seconds);
    let mut evaluation = UnhealthyEvaluation {
        since: UnhealthySinceByCluster::new(),
        clusters_to_evict: Vec::new(),
        next_deadline: None,
    };
    for item in &binding.status.aggregated_status {
        let cluster = &item.cluster_name;
        let target = binding.spec.clusters.iter().any(|t| t.name == *cluster);
        let state = rollout.and_then(|rollout| rollout.cluster(cluster));
        let is_updating = state.is_some_and(ClusterRolloutStatus::is_being_updated);
        let is_evicting = binding.spec.is_evicting(cluster);
        if item.health != "Unhealthy" || !target || is_updating || is_evicting {
            continue;
        }
        let began = since.get(cluster).copied().unwrap_or(now);
        evaluation.since.insert(cluster.clone(), began);
        match began.checked_add(tolerated) {
            Ok(end) if end < now => evaluation.clusters_to_evict.push(cluster.clone()),
            Ok(end) => {
                evaluation.next_deadline =
                    Some(evaluation.next_deadline.map_or(end, |next| next.min(end)))
            }
            // The end exceeds the range of timestamps.
            Err(_) => {}
        }
    }
    evaluation
}

/// Builds an eviction task. It is an error if the state to preserve was not collected
/// yet.
pub(super) fn eviction_task(
    binding: &ResourceBinding,
    application: &ApplicationFailoverBehavior,
    cluster: &str,
    producer: &str,
    gates: FeatureGates,
) -> Result<GracefulEvictionTask, EvictionTaskError> {
    let mut task = GracefulEvictionTask {
        from_cluster: cluster.to_owned(),
        purge_mode: application.purge_mode.clone(),
        reason: "ApplicationFailure".to_owned(),
        producer: producer.to_owned(),
        ..GracefulEvictionTask::default()
    };
    let rules = application.state_preservation.as_ref();
    let rules = rules.filter(|r| {
        gates.enabled(KarmadaFeature::StatefulFailoverInjection) && !r.rules.is_empty()
    });
    if rules.is_some() {
        let statuses = &binding.status.aggregated_status;
        task.preserved_label_state = preserved_labels(rules, statuses, cluster)?;
        let before = binding.spec.clusters.iter().map(|t| t.name.clone());
        task.clusters_before_failover = before.collect();
    }
    match application.purge_mode.as_str() {
        PURGE_MODE_GRACEFULLY if !gates.enabled(KarmadaFeature::GracefulEviction) => {
            return Err(EvictionTaskError::GracefulEvictionDisabled);
        }
        PURGE_MODE_GRACEFULLY => task.grace_period_seconds = application.grace_period_seconds,
        PURGE_MODE_NEVER => task.suppress_deletion = Some(true),
        _ => {}
    }
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn binding(application: Value, healths: &[(&str, &str)], evicting: &[&str]) -> ResourceBinding {
        let items: Vec<Value> = healths
            .iter()
            .map(|(c, h)| json!({"clusterName": c, "health": h, "status": {"id": "x"}}))
            .collect();
        let tasks: Vec<Value> = evicting
            .iter()
            .map(|c| json!({"fromCluster": c, "reason": "r", "producer": "p"}))
            .collect();
        serde_json::from_value(json!({
            "spec": {"propagateDeps": true, "clusters": [{"name": "a"}, {"name": "b"}],
                     "failover": {"application": application}, "gracefulEvictionTasks": tasks},
            "status": {"aggregatedStatus": items},
        }))
        .unwrap()
    }

    // proves: APP-tolerated, APP-anew, APP-evicting, APP-since
    #[test]
    fn unhealthy_for_too_long_is_evicted_and_anything_else_restarts_the_toleration() {
        let minute = json!({"decisionConditions": {"tolerationSeconds": 60}});
        let check = |healths: &[(&str, &str)],
                     evicting: &[&str],
                     since: &[(&str, i64)],
                     now: i64,
                     expected: (&[(&str, i64)], &[&str], Option<i64>)| {
            let binding = binding(minute.clone(), healths, evicting);
            let application = application_failover(&binding).unwrap();
            let times = |all: &[(&str, i64)]| -> UnhealthySinceByCluster {
                all.iter().map(|(c, s)| ((*c).to_owned(), at(*s))).collect()
            };
            let actual = evaluate_health(&binding, &application, None, &times(since), at(now));
            assert_eq!(actual.since, times(expected.0), "{healths:?} {now}");
            assert_eq!(actual.clusters_to_evict, expected.1, "{healths:?} {now}");
            assert_eq!(
                actual.next_deadline,
                expected.2.map(at),
                "{healths:?} {now}"
            );
        };
        let (well, sick, unknown) = ("Healthy", "Unhealthy", "Unknown");
        check(&[("a", well)], &[], &[], 0, (&[], &[], None));
        check(&[("a", sick)], &[], &[], 5, (&[("a", 5)], &[], Some(65)));
        let since = [("a", 5)];
        check(&[("a", sick)], &[], &since, 65, (&since, &[], Some(65)));
        check(&[("a", sick)], &[], &since, 66, (&since, &["a"], None));
        check(&[("a", well)], &[], &since, 66, (&[], &[], None));
        check(&[("a", unknown)], &[], &since, 66, (&[], &[], None));
        check(&[("a", sick)], &["a"], &since, 66, (&[], &[], None));
        check(&[("gone", sick)], &[], &[("gone", 0)], 99, (&[], &[], None));
        let both = [("a", 5), ("b", 30)];
        check(
            &[("a", sick), ("b", sick)],
            &[],
            &both,
            70,
            (&both, &["a"], Some(90)),
        );
    }

    // proves: APP-applies, APP-default
    #[test]
    fn it_applies_with_a_status_and_propagated_dependencies() {
        let toleration = |binding: &ResourceBinding| {
            application_failover(binding).map(|a| a.decision_conditions.toleration_seconds)
        };
        let mut some = binding(json!({}), &[("a", "Healthy")], &[]);
        assert_eq!(toleration(&some), Some(300));
        some.spec.propagate_deps = false;
        assert_eq!(toleration(&some), None);
        assert_eq!(
            toleration(&binding(Value::Null, &[("a", "Healthy")], &[])),
            None
        );
        assert_eq!(toleration(&binding(json!({}), &[], &[])), None);
    }

    // proves: APP-task, APP-gracefully, APP-never, APP-directly, APP-state, APP-state-first
    #[test]
    fn tasks_are_as_the_policy_says() {
        let state = json!({"rules": [{"aliasLabelName": "id", "jsonPath": "{.id}"}]});
        let check = |behavior: Value, gates: &str, expected: Result<Value, bool>| {
            let binding = binding(behavior.clone(), &[("b", "Unhealthy")], &[]);
            let application = application_failover(&binding).unwrap();
            let gates = gates.parse().unwrap();
            let actual = eviction_task(&binding, &application, "b", "p", gates);
            let expected = expected.map(|more| {
                let mut all = json!({"fromCluster": "b", "reason": "ApplicationFailure", "producer": "p", "purgeMode": behavior["purgeMode"]});
                all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                all
            });
            let actual = actual
                .map(|t| json!(t))
                .map_err(|e| e == EvictionTaskError::GracefulEvictionDisabled);
            assert_eq!(actual, expected, "{behavior} {gates:?}");
        };
        let gracefully = json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 9});
        check(gracefully.clone(), "", Ok(json!({"gracePeriodSeconds": 9})));
        check(gracefully, "GracefulEviction=false", Err(true));
        check(
            json!({"purgeMode": "Never"}),
            "",
            Ok(json!({"suppressDeletion": true})),
        );
        let stateful = json!({"purgeMode": "Directly", "statePreservation": state});
        check(stateful.clone(), "", Ok(json!({})));
        let on = "StatefulFailoverInjection=true";
        check(
            stateful,
            on,
            Ok(json!({"preservedLabelState": {"id": "x"}, "clustersBeforeFailover": ["a", "b"]})),
        );
        let missing = json!({"rules": [{"aliasLabelName": "id", "jsonPath": "{.other}"}]});
        check(
            json!({"purgeMode": "Directly", "statePreservation": missing}),
            on,
            Err(false),
        );
    }
}
