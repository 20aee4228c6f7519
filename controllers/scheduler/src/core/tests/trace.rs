//! Tests of decision traces.

use serde_json::json;

use super::super::*;
use super::cluster;
use super::decision_table::{parse_binding, parse_cases, placement};

fn trace(line: &str) -> DecisionTrace {
    let case = parse_cases(line).remove(0);
    let binding = &case.binding_case.binding;
    let request = ScheduleRequest {
        spec: &binding.spec,
        placement: &case.placement,
        term: None,
        fresh: case.binding_case.fresh,
    };
    make_decision(
        &request,
        &SchedulingContext::from_snapshot(&case.snapshot),
        &mut |_| {},
    )
    .trace()
}

// proves: DCN-content, DCN-refused
#[test]
fn a_trace_has_rejections_scores_available_replicas_and_rule() {
    let line =
        "a=10 b=20 c=5/taint:k=v:NoSchedule/bare | dyn spread:cluster:1-1 | n:4 at:a=2 | a:4";
    assert_eq!(
        serde_json::to_value(trace(line)).unwrap(),
        json!({
            "strategy": "DynamicWeight", "rule": "ScaleUp", "replicas": 4,
            "totalClusters": 3, "feasibleClusters": 2, "chosenClusters": 1,
            "refusals": {"cluster(s) did not have the API resource": 1},
            "clusters": [
                {"name": "a", "score": 100, "currentReplicas": 2, "availableReplicas": 10, "estimate": "Summary",
                 "chosen": true, "replicas": 4, "weight": 10},
                {"name": "b", "score": 0, "availableReplicas": 20, "estimate": "Summary", "chosen": false},
                {"name": "c", "chosen": false, "refused": [
                    {"plugin": "APIEnablement", "reason": "cluster(s) did not have the API resource"},
                    {"plugin": "TaintToleration", "reason": "cluster(s) had untolerated taint {k=v:NoSchedule}"},
                ]},
            ],
        })
    );
}

#[test]
fn a_trace_has_regions_and_failures() {
    let line = "a=10/region:r b=5/region:s | dup spread:region:1-1 spread:cluster:1-1 | n:4 | a:4";
    let regions = trace(line).regions;
    assert_eq!(
        serde_json::to_value(regions).unwrap(),
        json!([{"name": "r", "clusters": 1, "score": 1000, "chosen": true},
               {"name": "s", "clusters": 1, "score": 1000, "chosen": false}])
    );
    let failed = trace("a=1 | dyn | n:4 | -");
    assert_eq!(
        failed.failure.as_deref(),
        Some(
            "failed to assign replicas: failed to scale up: Clusters available replicas 1 are not enough to schedule."
        )
    );
}

fn scores(line: &str) -> Vec<(String, Option<i64>)> {
    let rows = trace(line).clusters.into_iter();
    let mut scores: Vec<_> = rows.map(|row| (row.name, row.score)).collect();
    scores.sort();
    scores
}

// proves: SCH-score-numbers
#[test]
fn a_cluster_that_has_the_binding_scores_a_hundred() {
    for (binding, expected) in [
        ("n:4", [Some(0), Some(0), None]),
        ("n:4 at:b=4", [Some(0), Some(100), None]),
        ("n:4 at:a=0,b=4", [Some(100), Some(100), None]),
        ("n:4 at:gone=4", [Some(0), Some(0), None]),
        ("n:4 at:b=4 off:ClusterLocality", [Some(0), Some(0), None]),
    ] {
        let actual = scores(&format!("a=10 b=20 c=30/bare | dup in:a,b | {binding} | -"));
        let actual: Vec<_> = actual.into_iter().map(|(_, score)| score).collect();
        assert_eq!(actual, expected, "{binding}");
    }
}

// proves: SCH-region-score-copies, SCH-region-score-divided
#[test]
fn a_region_scores_by_capacity_and_then_by_clusters() {
    let clusters = "a=70/region:r b=60/region:r c=40/region:r d=60/region:s";
    let dup = "dup spread:region:1-1 spread:cluster:1-1";
    let dyn2 = "dyn spread:region:2-2 spread:cluster:1-3";
    for (placement, binding, r, s) in [
        // Clusters with capacity for all replicas, and the mean of their scores.
        (dup, "n:50", 2000, 1000),
        (dup, "n:50 at:a=50", 2050, 1000),
        (dup, "n:50 at:c=10", 3033, 1000),
        (dup, "n:100", 0, 0),
        // The share of a region, as far as it has capacity, and the mean score of its used clusters.
        (dyn2, "n:100", 50_000, 50_000),
        (dyn2, "n:99", 50_000, 50_000),
        (dyn2, "n:100 at:a=1", 50_050, 50_000),
        (dyn2, "n:100 at:d=1", 50_000, 50_100),
        (dyn2, "n:200", 100_000, 60_000),
        (dyn2, "n:200 at:d=1", 100_000, 61_100),
        (dyn2, "n:400 at:c=1", 171_033, 60_000),
        (
            "dyn spread:region:2-2 spread:cluster:3-3",
            "n:100 at:a=1",
            50_033,
            50_000,
        ),
    ] {
        let line = format!("{clusters} | {placement} | {binding} | -");
        let regions = trace(&line).regions.into_iter();
        let actual: Vec<(String, i64)> = regions.map(|r| (r.name, r.score)).collect();
        assert_eq!(actual, [("r".into(), r), ("s".into(), s)], "{line}");
    }
}

// proves: SCH-available, SCH-available-unasked
#[test]
fn available_is_free_capacity_plus_present_replicas() {
    for (binding, available, estimate) in [
        ("n:4", 10, EstimateSource::Summary),
        ("n:4 at:a=3", 10, EstimateSource::Summary),
        ("n:4 plain", 10, EstimateSource::Pods),
        ("n:0", i64::from(i32::MAX), EstimateSource::Unbounded),
        ("object", i64::from(i32::MAX), EstimateSource::Unbounded),
    ] {
        let row = trace(&format!("a=10 | dup | {binding} | -"))
            .clusters
            .remove(0);
        assert_eq!(
            (row.available_replicas, row.estimate),
            (Some(available), Some(estimate)),
            "{binding}"
        );
    }
    // Present replicas count when clusters are compared.
    let chosen = |binding: &str| {
        let case = parse_cases(binding).remove(0);
        super::decision_table::format_result(&case)
    };
    let line = "a=10 b=12 | dup spread:cluster:1-1 | n:5 at:a=5,b=1 | -";
    assert_eq!(chosen(line), "a:5");
}

// proves: DCN-bounded
#[test]
fn its_size_is_bounded() {
    let long = "x".repeat(250);
    let taints = json!({"spec": {"taints": [{"key": long, "value": long, "effect": "NoExecute"}]}});
    let snapshot = ClusterSnapshot::new((0..2000).map(|n| {
        let more = if n % 2 == 0 {
            taints.clone()
        } else {
            json!({})
        };
        cluster(&format!("member-{n:05}"), 10, more)
    }));
    let case = parse_binding("n:30");
    let placement = placement("dyn");
    let request = ScheduleRequest {
        spec: &case.binding.spec,
        placement: &placement,
        term: None,
        fresh: false,
    };
    let decision = make_decision(
        &request,
        &SchedulingContext::from_snapshot(&snapshot),
        &mut |_| {},
    );
    let trace = decision.trace();
    let text = serde_json::to_string(&trace).unwrap();
    assert!(text.len() <= 16 * 1024, "{}", text.len());
    assert_eq!(trace.clusters.len() + trace.omitted_clusters, 2000);
    let assigned = trace.clusters.iter().filter(|row| row.replicas.is_some());
    assert_eq!(
        assigned.count(),
        decision.targets().len().min(trace.clusters.len())
    );
}
