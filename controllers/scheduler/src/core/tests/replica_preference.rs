//! Decisions about bindings that record a ReplicaSchedulingPreference.

use karmada_api::replica_preference::ReplicaSchedulingPreferenceSpec;
use karmada_api::well_known_keys::{OBSERVED_CAPACITY, REPLICA_PREFERENCE};
use karmada_api::{Placement, ResourceBinding};
use serde_json::{Value, json};

use super::super::{AssignmentRule, ClusterSnapshot, SchedulingContext};
use super::cluster;
use crate::reconcile::{ScheduleResult, schedule_binding};

/// A binding of `n/web` with 2 replicas in `a` and 4 in `b`, whose policy places it in `a` and `b`.
fn binding(preference: &Value, capacity: &Value) -> ResourceBinding {
    let spec: ReplicaSchedulingPreferenceSpec = serde_json::from_value(preference.clone()).unwrap();
    let placement: Placement =
        serde_json::from_value(json!({"clusterAffinity": {"clusterNames": ["a", "b"]}})).unwrap();
    let placement = spec.effective_placement(&placement);
    serde_json::from_value(json!({
        "metadata": {"annotations": {
            REPLICA_PREFERENCE: preference.to_string(), OBSERVED_CAPACITY: capacity.to_string(),
        }},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
            "replicas": preference["totalReplicas"], "replicaRequirements": {},
            "placement": placement,
            "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 4}],
        },
    }))
    .unwrap()
}

fn schedule_case(preference: &Value, capacity: &Value, fresh: bool) -> ScheduleResult {
    let clusters = ["a", "b", "c"].map(|name| cluster(name, 100, json!({})));
    let snapshot = ClusterSnapshot::new(clusters);
    let binding = binding(preference, capacity);
    let placement = binding.spec.placement.clone().unwrap();
    let context = SchedulingContext::from_snapshot(&snapshot);
    schedule_binding(&binding, &placement, fresh, &context, &mut |_| {})
}

fn targets(result: &ScheduleResult) -> String {
    let targets = result.targets.iter();
    let words: Vec<String> = targets
        .map(|t| format!("{}:{}", t.name, t.replicas))
        .collect();
    words.join(" ")
}

// proves: RSP-clusters, RSP-intersect, RSP-empty, RSP-fresh, RSP-overflow
#[test]
fn a_preference_selects_clusters_and_divides_replicas() {
    let even = json!({"a": {"weight": 1}, "b": {"weight": 1}});
    let rebalance =
        |clusters: &Value| json!({"totalReplicas": 6, "rebalance": true, "clusters": clusters});
    let none = json!({});
    let table = [
        // All clusters, whatever the policy places.
        (
            json!({"totalReplicas": 6, "rebalance": true}),
            &none,
            false,
            "a:2 b:2 c:2",
        ),
        (rebalance(&even), &none, false, "a:3 b:3"),
        (
            json!({"totalReplicas": 6, "rebalance": true, "intersectWithClusterSelector": true}),
            &none,
            false,
            "a:3 b:3",
        ),
        // Present replicas stay without rebalance, unless a reschedule was triggered.
        (
            json!({"totalReplicas": 6, "clusters": even}),
            &none,
            false,
            "a:2 b:4",
        ),
        (
            json!({"totalReplicas": 6, "clusters": even}),
            &none,
            true,
            "a:3 b:3",
        ),
        // Clusters without replicas get the object.
        (
            rebalance(&json!({"a": {"weight": 1}, "c": {}})),
            &none,
            false,
            "a:6 c:0",
        ),
        (
            json!({"totalReplicas": 0, "clusters": even}),
            &none,
            false,
            "a:0 b:0",
        ),
        // Replicas beyond the capacity of `b` run in `a`, and are offered to `b` nevertheless.
        (rebalance(&even), &json!({"b": 1}), false, "a:5 b:3"),
        (
            json!({"totalReplicas": 6, "clusters": even}),
            &json!({"b": 1}),
            false,
            "a:5 b:1",
        ),
    ];
    for (preference, capacity, fresh, expected) in table {
        let result = schedule_case(&preference, capacity, fresh);
        assert_eq!(result.failure, None, "{preference}");
        assert_eq!(targets(&result), expected, "{preference} {capacity}");
        assert_eq!(
            result.trace.rule,
            AssignmentRule::ReplicaSchedulingPreference
        );
        assert_eq!(result.trace.replica_preference.as_deref(), Some("web"));
    }
}

// proves: RSP-clusters
#[test]
fn clusters_that_the_preference_does_not_name_are_refused_with_that_reason() {
    let preference = json!({"totalReplicas": 6, "clusters": {"x": {"weight": 1}}});
    let failure = schedule_case(&preference, &json!({}), false)
        .failure
        .unwrap();
    assert_eq!(
        failure.to_string(),
        "0/3 clusters are available: 3 cluster(s) were not named by the ReplicaSchedulingPreference."
    );
}
