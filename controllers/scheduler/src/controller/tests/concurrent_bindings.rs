//! Tests with many bindings that are scheduled at the same time on the same clusters.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const BINDING_COUNT: usize = 12;

fn name(n: usize) -> String {
    format!("web-{n}-deployment")
}

/// Seeds bindings 0..MANY, each a copy that `with` changes.
fn seeded(clusters: &[&str], placement: &Value, with: impl Fn(&mut Value)) -> Arc<FakeApi> {
    let fake = FakeApi::new();
    for cluster in clusters {
        let member = crate::core::tests::cluster(cluster, 10, json!({}));
        fake.seed(&CLUSTERS, member.value().unwrap());
    }
    for n in 0..BINDING_COUNT {
        let mut one = binding(placement.clone());
        one["metadata"]["name"] = name(n).into();
        one["spec"]["resource"]["name"] = format!("web-{n}").into();
        with(&mut one);
        fake.seed(&BINDINGS, one);
    }
    fake
}

async fn wait_for_all_scheduled(plane: &SchedulerFixture) -> Vec<Value> {
    let mut all = Vec::new();
    for n in 0..BINDING_COUNT {
        let has_condition = |b: &Value| !condition(b).0.is_empty();
        all.push(plane.wait_for_named_binding(&name(n), has_condition).await);
    }
    all
}

fn placed(bindings: &[Value]) -> Vec<&Value> {
    let placed = bindings.iter().filter(|b| condition(b).0 == "True");
    placed.map(|b| &b["spec"]["clusters"]).collect()
}

// proves: SCH-reservations-gate
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_capacity_is_not_assigned_twice() {
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::SchedulingOvercommitProtection, true);
    for (gates, fitting) in [(FeatureGates::default(), BINDING_COUNT), (gates, 5)] {
        let plane = SchedulerFixture::with_gates(seeded(&["m1", "m2"], &divided, |_| {}), gates);
        let all = wait_for_all_scheduled(&plane).await;
        assert_eq!(placed(&all).len(), fitting);
        plane.tasks.stop().await;
    }
}

// proves: SCH-reservations-healthy
#[tokio::test]
async fn a_reservation_ends_once_the_cluster_reports_the_workload() {
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    let gates =
        FeatureGates::default().with_feature(KarmadaFeature::SchedulingOvercommitProtection, true);
    let plane = SchedulerFixture::with_gates(seeded(&["m1"], &divided, |_| {}), gates);
    let mut all = wait_for_all_scheduled(&plane).await;
    assert_eq!(placed(&all).len(), 2);
    let healthy = all.iter().position(|b| condition(b).0 == "True").unwrap();
    all[healthy]["status"]["aggregatedStatus"] =
        json!([{"clusterName": "m1", "health": "Healthy"}]);
    plane.fake.seed(&BINDINGS, all[healthy].clone());
    let waiting = all.iter().position(|b| condition(b).0 == "False").unwrap();
    all[waiting]["metadata"]["generation"] = 7.into();
    plane.fake.seed(&BINDINGS, all[waiting].clone());
    plane
        .wait_for_named_binding(&name(waiting), |b| condition(b).0 == "True")
        .await;
    plane.tasks.stop().await;
}

// proves: SCH-workload-affinity, SCH-peers-assigning
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workloads_of_a_group_are_separated_or_colocated() {
    let one = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    let gates = FeatureGates::default().with_feature(KarmadaFeature::WorkloadAffinity, true);
    let clusters = ["m1", "m2", "m3"];
    let apart = json!({"antiAffinityGroup": "app=web"});
    let fake = seeded(&clusters, &one, |b| {
        b["spec"]["workloadAffinityGroups"] = apart.clone()
    });
    let plane = SchedulerFixture::with_gates(fake, gates);
    let all = wait_for_all_scheduled(&plane).await;
    let mut names: Vec<&str> = placed(&all)
        .iter()
        .filter_map(|c| c[0]["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, clusters);
    let rejection = all.iter().find(|b| condition(b).0 == "False").unwrap();
    assert_eq!(
        rejection["status"]["conditions"][0]["message"],
        "0/3 clusters are available: 3 cluster already has workload with the same anti-affinity group."
    );
    plane.tasks.stop().await;

    let together = json!({"affinityGroup": "app=web"});
    let fake = seeded(&clusters, &one, |b| {
        b["spec"]["workloadAffinityGroups"] = together.clone()
    });
    let plane = SchedulerFixture::with_gates(fake, gates);
    let all = wait_for_all_scheduled(&plane).await;
    let placed = placed(&all);
    assert_eq!(placed.len(), BINDING_COUNT);
    assert!(placed.iter().all(|c| *c == placed[0]));
    plane.tasks.stop().await;
}

// proves: SCH-queue-priority, SCH-queue-gate
#[tokio::test]
async fn higher_priorities_are_placed_first_where_they_count() {
    for (count, first) in [(true, BINDING_COUNT - 1), (false, 0)] {
        assert_eq!(placed_first(count).await, name(first));
    }
}

/// The first of many bindings to be scheduled; the last has the highest priority.
async fn placed_first(priorities_count: bool) -> String {
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}});
    let gates = FeatureGates::default()
        .with_feature(KarmadaFeature::SchedulingOvercommitProtection, true)
        .with_feature(KarmadaFeature::PriorityBasedScheduling, priorities_count);
    let fake = seeded(&["m1"], &divided, |b| {
        let last = b["metadata"]["name"] == name(BINDING_COUNT - 1);
        b["spec"]["schedulePriority"] = json!({"priority": if last { 9 } else { 0 }});
    });
    // Until the clusters are synced, all bindings wait in the queue.
    let bindings_known = AtomicBool::new(false);
    fake.on_call(move |call| {
        if call.verb == "watch" && call.resource == Some(&BINDINGS) {
            bindings_known.store(true, Ordering::Relaxed);
        }
        let early = call.resource == Some(&CLUSTERS) && !bindings_known.load(Ordering::Relaxed);
        early.then(|| machinery::Status::failure(500, "InternalError", "not yet").into())
    });
    let plane = SchedulerFixture::with_gates(fake, gates);
    wait_for_all_scheduled(&plane).await;
    let first = plane.fake.writes().into_iter().next().unwrap();
    plane.tasks.stop().await;
    first.name
}
