//! What a decision tells of itself.

use serde_json::json;

use super::super::*;
use super::cluster;
use super::table::{asked, cases, placement};

fn trace(line: &str) -> Trace {
    let case = cases(line).remove(0);
    let binding = &case.asked.binding;
    let request = Request {
        spec: &binding.spec,
        placement: &case.placement,
        term: None,
        fresh: case.asked.fresh,
    };
    decide(&request, &World::of(&case.snapshot), &mut |_| {}).trace()
}

// proves: DCN-told, DCN-refused
#[test]
fn it_names_verdicts_scores_room_and_rule() {
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
fn it_names_regions_and_failures() {
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

// proves: DCN-bounded
#[test]
fn its_size_is_bounded() {
    let long = "x".repeat(250);
    let taints = json!({"spec": {"taints": [{"key": long, "value": long, "effect": "NoExecute"}]}});
    let snapshot = Snapshot::new((0..2000).map(|n| {
        let more = if n % 2 == 0 {
            taints.clone()
        } else {
            json!({})
        };
        cluster(&format!("member-{n:05}"), 10, more)
    }));
    let asked = asked("n:30");
    let placement = placement("dyn");
    let request = Request {
        spec: &asked.binding.spec,
        placement: &placement,
        term: None,
        fresh: false,
    };
    let decision = decide(&request, &World::of(&snapshot), &mut |_| {});
    let trace = decision.trace();
    let text = serde_json::to_string(&trace).unwrap();
    assert!(text.len() <= 16 * 1024, "{}", text.len());
    assert_eq!(trace.clusters.len() + trace.omitted_clusters, 2000);
    let told = trace.clusters.iter().filter(|row| row.replicas.is_some());
    assert_eq!(
        told.count(),
        decision.targets().len().min(trace.clusters.len())
    );
}
