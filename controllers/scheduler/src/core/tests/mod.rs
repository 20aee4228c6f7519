//! Tables of decisions: filter, selection, division.

use machinery::Object;
use openapi::karmada::binding::EvictionTask;
use openapi::karmada::{BindingSpec, TargetCluster};
use serde_json::{Value, json};

use super::*;

/// A cluster with room for so many pods.
pub(crate) fn cluster(name: &str, pods: i64, more: Value) -> Object {
    let mut cluster = json!({
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"syncMode": "Push"},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
            "resourceSummary": {"allocatable": {"pods": pods, "cpu": "10", "memory": "10Gi"}},
        },
    });
    json_merge(&mut cluster, &more);
    Object::from_value(&cluster).unwrap()
}

fn json_merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (k, v) in more {
                json_merge(into.entry(k.clone()).or_insert(Value::Null), v);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

fn three() -> Snapshot {
    Snapshot::new(
        [("m1", 10), ("m2", 20), ("m3", 30)].map(|(name, pods)| cluster(name, pods, json!({}))),
    )
}

fn spec(replicas: i64, placement: Value, current: &[(&str, i64)]) -> BindingSpec {
    let clusters = current
        .iter()
        .map(|(n, r)| TargetCluster {
            name: (*n).into(),
            replicas: *r,
        })
        .collect();
    BindingSpec {
        replicas,
        clusters,
        placement: Some(serde_json::from_value(placement).unwrap()),
        resource: serde_json::from_value(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}),
        )
        .unwrap(),
        ..BindingSpec::default()
    }
}

fn run(
    spec: &BindingSpec,
    snapshot: &Snapshot,
    fresh: bool,
) -> Result<Vec<(String, i64)>, Failure> {
    let placement = spec.placement.as_ref().unwrap();
    let request = Request {
        spec,
        placement,
        term: placement.cluster_affinities.first(),
        fresh,
    };
    schedule(&request, snapshot).map(|targets| {
        let mut all: Vec<(String, i64)> =
            targets.into_iter().map(|t| (t.name, t.replicas)).collect();
        all.sort();
        all
    })
}

fn check(spec: &BindingSpec, snapshot: &Snapshot, fresh: bool, expected: &[(&str, i64)]) {
    let expected: Vec<(String, i64)> = expected
        .iter()
        .map(|(n, r)| ((*n).to_owned(), *r))
        .collect();
    assert_eq!(run(spec, snapshot, fresh), Ok(expected), "{spec:?}");
}

fn weighted(weights: &[(&str, i64)]) -> Value {
    let list: Vec<Value> = weights
        .iter()
        .map(|(n, w)| json!({"targetCluster": {"clusterNames": [n]}, "weight": w}))
        .collect();
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
           "weightPreference": {"staticWeightList": list}}})
}

fn dynamic(preference: &str) -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference,
           "weightPreference": {"dynamicWeight": "AvailableReplicas"}}})
}

#[test]
fn without_a_strategy_every_cluster_gets_all() {
    check(
        &spec(3, json!({}), &[]),
        &three(),
        false,
        &[("m1", 3), ("m2", 3), ("m3", 3)],
    );
    let named = json!({"clusterAffinity": {"clusterNames": ["m2"]}});
    check(&spec(3, named.clone(), &[]), &three(), false, &[("m2", 3)]);
    check(&spec(0, named, &[]), &three(), false, &[("m2", 0)]);
}

#[test]
fn static_weights_divide_all_replicas_anew() {
    check(
        &spec(4, weighted(&[("m1", 1), ("m2", 1)]), &[]),
        &three(),
        false,
        &[("m1", 2), ("m2", 2)],
    );
    check(
        &spec(3, weighted(&[("m1", 2), ("m2", 1)]), &[("m2", 3)]),
        &three(),
        false,
        &[("m1", 2), ("m2", 1)],
    );
    check(
        &spec(1, weighted(&[("m1", 1), ("m2", 9)]), &[]),
        &three(),
        false,
        &[("m2", 1)],
    );
    check(
        &spec(3, weighted(&[("elsewhere", 1)]), &[]),
        &three(),
        false,
        &[("m1", 1), ("m2", 1), ("m3", 1)],
    );
    let unweighted = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}});
    check(
        &spec(6, unweighted, &[]),
        &three(),
        false,
        &[("m1", 2), ("m2", 2), ("m3", 2)],
    );
}

#[test]
fn dynamic_weights_follow_the_room_and_move_only_the_difference() {
    check(
        &spec(6, dynamic("Weighted"), &[]),
        &three(),
        false,
        &[("m1", 1), ("m2", 2), ("m3", 3)],
    );
    check(
        &spec(6, dynamic("Weighted"), &[("m1", 6)]),
        &three(),
        false,
        &[("m1", 6)],
    );
    check(
        &spec(12, dynamic("Weighted"), &[("m1", 6)]),
        &three(),
        false,
        &[("m1", 7), ("m2", 2), ("m3", 3)],
    );
    check(
        &spec(3, dynamic("Weighted"), &[("m1", 4), ("m2", 2)]),
        &three(),
        false,
        &[("m1", 2), ("m2", 1)],
    );
    check(
        &spec(6, dynamic("Weighted"), &[("m1", 6)]),
        &three(),
        true,
        &[("m1", 1), ("m2", 2), ("m3", 3)],
    );
}

#[test]
fn aggregated_takes_as_few_clusters_as_suffice() {
    check(
        &spec(25, dynamic("Aggregated"), &[]),
        &three(),
        false,
        &[("m3", 25)],
    );
    check(
        &spec(40, dynamic("Aggregated"), &[]),
        &three(),
        false,
        &[("m2", 16), ("m3", 24)],
    );
    check(
        &spec(12, dynamic("Aggregated"), &[("m2", 10)]),
        &three(),
        false,
        &[("m2", 12)],
    );
    assert_eq!(
        run(&spec(61, dynamic("Aggregated"), &[]), &three(), false),
        Err(Failure::Unschedulable(
            "failed to assign replicas: Clusters available replicas 60 are not enough to schedule."
                .into()
        ))
    );
}

#[test]
fn requests_bound_the_room() {
    let mut asking = spec(4, dynamic("Weighted"), &[]);
    asking.replica_requirements = Some(json!({"resourceRequest": {"cpu": "4"}}));
    check(&asking, &three(), false, &[("m1", 2), ("m2", 1), ("m3", 1)]);
    asking.replica_requirements = Some(json!({"resourceRequest": {"nvidia.com/gpu": "1"}}));
    assert!(matches!(
        run(&asking, &three(), false),
        Err(Failure::Unschedulable(_))
    ));
}

#[test]
fn overflow_tiers_fill_one_after_the_other() {
    let mut placement = dynamic("Aggregated");
    placement["clusterAffinities"] = json!([{"affinityName": "own", "clusterNames": ["m1"],
        "overflowAffinities": [{"affinityName": "more", "clusterNames": ["m2"]}]}]);
    check(
        &spec(8, placement.clone(), &[]),
        &three(),
        false,
        &[("m1", 8)],
    );
    check(
        &spec(15, placement.clone(), &[]),
        &three(),
        false,
        &[("m1", 10), ("m2", 5)],
    );
    assert!(matches!(
        run(&spec(31, placement, &[]), &three(), false),
        Err(Failure::Unschedulable(_))
    ));
}

#[test]
fn spread_over_clusters_takes_the_best() {
    let spread = |min: i64, max: i64| {
        let mut placement = dynamic("Weighted");
        placement["spreadConstraints"] =
            json!([{"spreadByField": "cluster", "minGroups": min, "maxGroups": max}]);
        placement
    };
    check(
        &spec(10, spread(1, 2), &[]),
        &three(),
        false,
        &[("m2", 4), ("m3", 6)],
    );
    assert_eq!(
        run(&spec(10, spread(4, 5), &[]), &three(), false),
        Err(Failure::Error(
            "failed to select clusters: the number of feasible clusters is less than spreadConstraint.MinGroups".into()
        ))
    );
    assert_eq!(
        run(&spec(55, spread(1, 2), &[]), &three(), false),
        Err(Failure::Error(
            "failed to select clusters: no enough resource when selecting 2 clusters".into()
        ))
    );
    // One that is a target scores higher, but has too little room and is swapped.
    check(
        &spec(45, spread(1, 2), &[("m1", 1)]),
        &three(),
        false,
        &[("m2", 18), ("m3", 27)],
    );
}

#[test]
fn refusals_name_their_reasons() {
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let snapshot = Snapshot::new([
        cluster("m1", 1, taint("NoSchedule")),
        cluster("m2", 1, json!({"status": {"apiEnablements": []}})),
        cluster(
            "m3",
            1,
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ),
        cluster("m4", 1, json!({})),
    ]);
    let named = json!({"clusterAffinity": {"clusterNames": ["m1", "m2", "m3"]}});
    let mut wanted = spec(1, named, &[]);
    assert_eq!(
        run(&wanted, &snapshot, false),
        Err(Failure::NoFit(
            "0/4 clusters are available: 1 cluster(s) did not have the API resource, 1 cluster(s) did not match the placement cluster affinity constraint, 1 cluster(s) had untolerated taint {k=v:NoSchedule}."
                .into()
        ))
    );
    // What is a target already is neither asked for its kinds nor its taints.
    wanted.clusters = vec![TargetCluster {
        name: "m1".into(),
        replicas: 1,
    }];
    check(&wanted, &snapshot, false, &[("m1", 1)]);
    wanted.graceful_eviction_tasks = vec![EvictionTask {
        from_cluster: "m1".into(),
        ..EvictionTask::default()
    }];
    assert!(
        matches!(run(&wanted, &snapshot, false), Err(Failure::NoFit(text)) if text.contains("in the process of eviction"))
    );
    assert_eq!(
        run(&spec(1, json!({}), &[]), &Snapshot::default(), false),
        Err(Failure::NoFit(
            "0/0 clusters are available: no cluster exists.".into()
        ))
    );
}

#[test]
fn tolerations_are_those_of_the_core_api() {
    let table = [
        (json!({"key": "k", "value": "v"}), true),
        (
            json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
            true,
        ),
        (json!({"key": "k", "operator": "Exists"}), true),
        (json!({"operator": "Exists"}), true),
        (json!({"key": "k", "value": "w"}), false),
        (json!({"key": "other", "operator": "Exists"}), false),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
            false,
        ),
    ];
    let tainted = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
    let snapshot = Snapshot::new([cluster("m1", 1, tainted)]);
    for (toleration, fits) in table {
        let wanted = spec(1, json!({"clusterTolerations": [toleration]}), &[]);
        assert_eq!(run(&wanted, &snapshot, false).is_ok(), fits, "{toleration}");
    }
}

#[test]
fn the_order_in_which_clusters_are_listed_changes_nothing() {
    let forward = three();
    let backward = Snapshot::new(
        [("m3", 30), ("m2", 20), ("m1", 10)].map(|(name, pods)| cluster(name, pods, json!({}))),
    );
    for placement in [
        json!({}),
        weighted(&[("m1", 1), ("m3", 2)]),
        dynamic("Weighted"),
        dynamic("Aggregated"),
    ] {
        let wanted = spec(7, placement, &[("m2", 1)]);
        assert_eq!(
            run(&wanted, &forward, false),
            run(&wanted, &backward, false)
        );
    }
}
