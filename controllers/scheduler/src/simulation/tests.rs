//! Tests of the simulation.

use serde_json::{Value, json};

use super::*;
use crate::core::tests::cluster;

pub(crate) fn snapshot(clusters: usize) -> ClusterSnapshot {
    ClusterSnapshot::new((1..=clusters).map(|n| cluster(&format!("m{n}"), 10, json!({}))))
}

pub(crate) fn binding(spec: Value, status: Value) -> ResourceBinding {
    let mut full = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
        "replicas": 4,
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}},
    });
    let more = spec.as_object().unwrap().clone();
    full.as_object_mut().unwrap().extend(more);
    serde_json::from_value(json!({"spec": full, "status": status})).unwrap()
}

#[test]
fn a_binding_is_simulated_where_the_scheduler_would_place_it() {
    let there = json!([{"name": "m2", "replicas": 4}]);
    let scheduled = json!({"lastScheduledTime": "2026-01-01T00:00:00Z"});
    let elsewhere = json!({"clusterAffinity": {"clusterNames": ["m9"]}, "replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    for (spec, status, clusters, failed, left) in [
        (json!({}), json!({}), vec![("m1", 4)], false, None),
        (
            json!({"replicas": 16, "clusters": there}),
            scheduled.clone(),
            vec![("m1", 6), ("m2", 10)],
            false,
            None,
        ),
        (
            json!({"clusters": there, "placement": elsewhere}),
            scheduled.clone(),
            vec![],
            true,
            None,
        ),
        (
            json!({"replicas": 99, "clusters": there}),
            scheduled,
            vec![("m2", 4)],
            true,
            None,
        ),
        (
            json!({"suspension": {"scheduling": true}}),
            json!({}),
            vec![],
            false,
            Some(SchedulingSkipReason::Suspended),
        ),
        (
            json!({"schedulerName": "other"}),
            json!({}),
            vec![],
            false,
            Some(SchedulingSkipReason::OtherScheduler),
        ),
    ] {
        let text = format!("{spec}");
        let clusters_of = snapshot(2);
        let simulated = simulate(
            &binding(spec, status),
            7,
            "default-scheduler",
            &SchedulingContext::from_snapshot(&clusters_of),
        );
        let mut got: Vec<(&str, i64)> = simulated
            .clusters
            .iter()
            .map(|t| (t.name.as_str(), t.replicas))
            .collect();
        got.sort_unstable();
        assert_eq!(
            (got, simulated.failure.is_some(), simulated.skip_reason),
            (clusters, failed, left),
            "{text}"
        );
        assert_eq!(
            simulated.explanation.map(|e| e.generation),
            left.is_none().then_some(7),
            "{text}"
        );
    }
}

/// Simulates one binding after the other; `others` exist already.
fn simulate_all(clusters: usize, others: &[Object], specs: &[Value]) -> Vec<Vec<(String, i64)>> {
    let snapshot = snapshot(clusters);
    let mut simulation = SchedulingSimulation::new(Instant::now());
    let one = |(n, spec): (usize, &Value)| {
        let mut full = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
            "replicas": 4, "replicaRequirements": {},
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}},
        });
        let more = spec.as_object().unwrap().clone();
        full.as_object_mut().unwrap().extend(more);
        let object = json!({"metadata": {"name": format!("b{n}"), "namespace": "n"}, "spec": full});
        let object = Object::from_value(&object).unwrap();
        let simulated = simulation.simulate(&object, others, "default-scheduler", &snapshot);
        let simulated = simulated.unwrap();
        let mut clusters: Vec<_> = simulated
            .clusters
            .into_iter()
            .map(|t| (t.name, t.replicas))
            .collect();
        clusters.sort();
        clusters
    };
    specs.iter().enumerate().map(one).collect()
}

fn target_pairs(clusters: &[(&str, i64)]) -> Vec<(String, i64)> {
    clusters
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect()
}

#[test]
fn the_same_capacity_is_not_used_twice() {
    // Each of two clusters has capacity for ten.
    let six = json!({"replicas": 6});
    assert_eq!(
        simulate_all(
            2,
            &[],
            &[
                six.clone(),
                six.clone(),
                six.clone(),
                json!({"replicas": 4})
            ]
        ),
        [
            target_pairs(&[("m1", 6)]),
            target_pairs(&[("m2", 6)]),
            target_pairs(&[("m1", 3), ("m2", 3)]),
            target_pairs(&[])
        ]
    );
    // Existing replicas take no further capacity, and released capacity is not free at once.
    let existing = json!({"replicas": 6, "clusters": [{"name": "m1", "replicas": 6}]});
    assert_eq!(
        simulate_all(1, &[], &[existing, six]),
        [target_pairs(&[("m1", 6)]), target_pairs(&[("m1", 6)])]
    );
    let more = json!({"replicas": 9, "clusters": [{"name": "m1", "replicas": 6}]});
    let eight = json!({"replicas": 8});
    assert_eq!(
        simulate_all(1, &[], &[more, eight]),
        [target_pairs(&[("m1", 9)]), target_pairs(&[])]
    );
    let less = json!({"replicas": 1, "clusters": [{"name": "m1", "replicas": 6}]});
    assert_eq!(
        simulate_all(1, &[], &[less, json!({"replicas": 11})]),
        [target_pairs(&[("m1", 1)]), target_pairs(&[])]
    );
}

#[test]
fn earlier_simulated_bindings_count_for_their_group() {
    let gates = karmada_api::FeatureGates::default();
    let gates = gates.with_feature(karmada_api::KarmadaFeature::WorkloadAffinity, true);
    let rules = SchedulingSettings::new(gates, crate::core::SchedulerPluginSet::default(), false);
    let snapshot = snapshot(2).with_settings(rules);
    let mut simulation = SchedulingSimulation::new(Instant::now());
    let object = |name: &str, clusters: &[&str]| {
        let clusters: Vec<Value> = clusters
            .iter()
            .map(|c| json!({"name": c, "replicas": 1}))
            .collect();
        let spec = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name},
            "replicas": 1, "replicaRequirements": {}, "clusters": clusters, "placement": {},
            "workloadAffinityGroups": {"affinityGroup": "app=a"},
        });
        Object::from_value(&json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec}))
            .unwrap()
    };
    // One of the group is in m1; otherwise it would be placed everywhere.
    let others = [object("a", &["m1"])];
    let mut names = |name: &str, clusters: &[&str]| -> Vec<String> {
        let simulated = simulation.simulate(
            &object(name, clusters),
            &others,
            "default-scheduler",
            &snapshot,
        );
        let mut names: Vec<_> = simulated
            .unwrap()
            .clusters
            .into_iter()
            .map(|t| t.name)
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("b", &[]), ["m1"]);
    assert_eq!(names("a", &["m2"]), ["m1", "m2"]);
    assert_eq!(names("c", &[]), ["m1"]);
}
