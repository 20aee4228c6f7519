//! What a Cluster gets when it comes, and what it waits for when it goes.

use std::time::Duration;

use client::{Api, At, DeleteOptions};
use machinery::time::rfc3339_micros;
use openapi::karmada::resources::{BINDINGS, CLUSTERS, WORKS};
use serde_json::{Value, json};

use super::monitor::{LEASE_NAMESPACE, LEASES};
use crate::NAMESPACES;
use crate::lab::{Lab, cluster, ready, taints};

fn finalizers(of: &Value) -> &Value {
    &of["metadata"]["finalizers"]
}

async fn delete(lab: &Lab, name: &str) {
    let at = At::one(&CLUSTERS, "", name);
    lab.host
        .delete(at, &DeleteOptions::default())
        .await
        .unwrap();
}

// proves: FIN-cluster, NAM-space, LAB-system
#[tokio::test(start_paused = true)]
async fn a_cluster_gets_its_space_and_taints() {
    let lab = Lab::start();
    let mut own = cluster("m1", "Push");
    own["spec"]["taints"] = json!([{"key": "own", "effect": "NoExecute"}]);
    own["metadata"]["finalizers"] = json!(["foreign"]);
    lab.host.seed(&CLUSTERS, own);
    let kept = lab.until("m1", |c| taints(c).len() == 2).await;
    assert_eq!(taints(&kept), ["own", "not-ready"]);
    assert_eq!(
        finalizers(&kept),
        &json!(["foreign", "karmada.io/cluster-controller"])
    );
    assert!(kept["spec"]["taints"][1]["timeAdded"].is_string());
    let space = lab.space("m1").unwrap();
    assert_eq!(
        space["metadata"]["labels"],
        json!({"karmada.io/system": "true"})
    );
    // One that is taken away is made again.
    lab.host.remove(&NAMESPACES, "", "karmada-es-m1");
    lab.settle().await;
    assert!(lab.space("m1").is_some());
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_taint_takes_its_list_away() {
    let lab = Lab::start();
    lab.join("m1");
    let ready = lab
        .until("m1", |c| ready(c).0 == "True" && taints(c).is_empty())
        .await;
    assert_eq!(ready["spec"]["taints"], Value::Null);
    lab.tasks.stop().await;
}

// proves: FIN-cluster
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_the_space_and_the_bindings() {
    let lab = Lab::start();
    lab.join("m1");
    lab.until("m1", |c| ready(c).0 == "True").await;
    let mut space = lab.space("m1").unwrap();
    space["metadata"]["finalizers"] = json!(["test"]);
    lab.host.seed(&NAMESPACES, space);
    let binding = |generation: i64, clusters: Value| {
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
               "metadata": {"name": "b", "namespace": "n", "generation": generation},
               "spec": {"resource": {}, "clusters": clusters, "requiredBy": [{"name": "x", "clusters": [{"name": "m1"}]}]}})
    };
    lab.host.seed(
        &BINDINGS,
        binding(1, json!([{"name": "m1"}, {"name": "m2"}])),
    );
    lab.settle().await;

    delete(&lab, "m1").await;
    lab.settle().await;
    assert!(lab.space("m1").unwrap()["metadata"]["deletionTimestamp"].is_string());
    lab.host.remove(&NAMESPACES, "", "karmada-es-m1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(lab.cluster("m1").is_object(), "a binding is left");
    lab.host
        .seed(&BINDINGS, binding(2, json!([{"name": "m2"}])));
    lab.settle().await;
    assert!(lab.cluster("m1").is_null());
    assert_eq!(lab.space("m1"), None);
    lab.tasks.stop().await;
}

// proves: FIN-work-silent
#[tokio::test(start_paused = true)]
async fn a_silent_agent_becomes_unknown_and_lets_go_of_its_works() {
    let lab = Lab::start();
    lab.host.seed(&CLUSTERS, cluster("p1", "Pull"));
    let lease = |at: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "p1", "namespace": LEASE_NAMESPACE}, "spec": {"renewTime": at}})
    };
    let mut told = lab.until("p1", |c| finalizers(c).is_array()).await;
    told["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    lab.host.seed(&CLUSTERS, told);
    for second in 0..6 {
        let now = jiff::Timestamp::from_second(1_767_225_600 + second * 15).unwrap();
        lab.host.seed(&LEASES, lease(&rfc3339_micros(now)));
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(ready(&lab.cluster("p1")).0, "True");
    }
    let unknown = lab.until("p1", |c| ready(c).0 == "Unknown").await;
    assert_eq!(ready(&unknown).1, "ClusterStatusUnknown");
    lab.until("p1", |c| taints(c) == ["unreachable"]).await;

    let work = |name: &str| {
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
               "metadata": {"name": name, "namespace": "karmada-es-p1", "finalizers": ["karmada.io/execution-controller", "x"]}})
    };
    let left = |name: &str| lab.host.object(&WORKS, "karmada-es-p1", name).unwrap();
    lab.host.seed(&WORKS, work("w"));
    let mut space = lab.space("p1").unwrap();
    space["metadata"]["finalizers"] = json!(["kubernetes"]);
    lab.host.seed(&NAMESPACES, space);
    delete(&lab, "p1").await;
    lab.settle().await;
    assert_eq!(finalizers(&left("w")), &json!(["x"]));
    // Written by one who had not heard of the end yet.
    lab.host.seed(&WORKS, work("late"));
    lab.settle().await;
    assert_eq!(finalizers(&left("late")), &json!(["x"]));
    lab.host.remove(&NAMESPACES, "", "karmada-es-p1");
    lab.settle().await;
    assert!(lab.cluster("p1").is_null());
    lab.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_spoke_becomes_unknown() {
    let lab = Lab::start();
    lab.host.seed(&CLUSTERS, cluster("p1", "Pull"));
    let unknown = lab.until("p1", |c| ready(c).0 == "Unknown").await;
    assert_eq!(ready(&unknown).1, "ClusterStatusNeverUpdated");
    assert!(lab.began.elapsed() > Duration::from_secs(60));
    assert!(lab.began.elapsed() < Duration::from_secs(70));
    lab.tasks.stop().await;
}
