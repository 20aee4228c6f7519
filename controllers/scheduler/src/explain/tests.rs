//! What is told of decisions.

use serde_json::{Value, json};

use super::*;
use crate::core::tests::cluster;
use crate::core::{ClusterTrace, Snapshot};

fn snapshot(clusters: usize) -> Snapshot {
    Snapshot::new((1..=clusters).map(|n| cluster(&format!("m{n}"), 10, json!({}))))
}

fn binding(spec: Value, status: Value) -> Binding {
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
fn a_binding_is_foreseen_where_the_scheduler_would_bring_it() {
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
            Some(LeftAlone::Suspended),
        ),
        (
            json!({"schedulerName": "other"}),
            json!({}),
            vec![],
            false,
            Some(LeftAlone::OtherScheduler),
        ),
    ] {
        let told = format!("{spec}");
        let clusters_of = snapshot(2);
        let seen = foresee(
            &binding(spec, status),
            7,
            "default-scheduler",
            &World::of(&clusters_of),
        );
        let mut got: Vec<(&str, i64)> = seen
            .clusters
            .iter()
            .map(|t| (t.name.as_str(), t.replicas))
            .collect();
        got.sort_unstable();
        assert_eq!(
            (got, seen.failure.is_some(), seen.left_alone),
            (clusters, failed, left),
            "{told}"
        );
        assert_eq!(
            seen.explanation.map(|e| e.generation),
            left.is_none().then_some(7),
            "{told}"
        );
    }
}

// proves: DCN-bounded
#[test]
fn whatever_went_wrong_it_is_told_within_bounds() {
    let text = "x".repeat(5000);
    let failed = |index| crate::decide::FailedTerm {
        index,
        affinity_name: format!("term-{index}"),
        failure: Failure::NoFit(text.clone()),
    };
    let rows = (0..60).map(|n| ClusterTrace {
        name: format!("{n:0200}"),
        ..ClusterTrace::default()
    });
    let mut outcome = Outcome {
        lacking: Vec::new(),
        targets: Vec::new(),
        term: None,
        failure: Some(Failure::NoFit(text.clone())),
        failed_terms: (0..50).map(failed).collect(),
        trace: Trace {
            failure: Some(text.clone()),
            clusters: rows.collect(),
            ..Trace::default()
        },
    };
    let told = Explanation::of(&mut outcome, 1, false);
    assert!(told.size() <= LIMIT, "{}", told.size());
    assert_eq!(told.failed_terms.len(), TERMS);
    let rows = told.trace.clusters.len();
    assert!(
        rows > 0 && rows + told.trace.omitted_clusters == 60,
        "{rows}"
    );
}

// proves: DCN-terms
#[test]
fn terms_that_had_no_result_are_told_beside_the_one_that_had() {
    let terms = json!([{"affinityName": "a", "clusterNames": ["m9"]}, {"affinityName": "b", "clusterNames": ["m2"]}]);
    let binding = binding(
        json!({"placement": {"clusterAffinities": terms}}),
        json!({}),
    );
    let clusters = snapshot(2);
    let told = explain(&binding, 3, &World::of(&clusters)).unwrap();
    let told = serde_json::to_value(told).unwrap();
    assert_eq!(told["failedTerms"][0]["affinityName"], "a");
    assert!(
        told["failedTerms"][0]["failure"]
            .as_str()
            .unwrap()
            .starts_with("0/2 clusters"),
        "{told}"
    );
    assert_eq!(
        (&told["affinityName"], &told["generation"]),
        (&json!("b"), &json!(3))
    );
}
