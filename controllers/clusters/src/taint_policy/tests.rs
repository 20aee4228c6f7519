//! Tests of the ClusterTaintPolicy controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use karmada_api::resources::{CLUSTERS, TAINT_POLICIES};
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::Status;
use serde_json::{Value, json};

use crate::fixture::{ClustersFixture, taint_keys};
use crate::options::ClusterControllersSettings;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";

fn fixture(gate: bool) -> ClustersFixture {
    ClustersFixture::with_options(ClusterControllersSettings {
        gates: FeatureGates::default().with_feature(KarmadaFeature::Failover, gate),
        ..ClusterControllersSettings::default()
    })
}

fn policy(key: &str) -> Value {
    let when = |status: &str| json!([{"conditionType": "Net", "operator": "In", "statusValues": [status]}]);
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": {"name": "p"},
           "spec": {"targetClusters": {"clusterNames": ["a"]}, "addOnConditions": when("False"),
                    "removeOnConditions": when("True"), "taints": [{"key": key, "effect": "NoExecute"}]}})
}

/// Creates a Ready cluster with this status of the condition `Net`.
fn network(fixture: &ClustersFixture, name: &str, status: &str) {
    fixture.seed_unprobed_cluster(name, "True", LONG_AGO);
    let mut cluster = fixture.cluster(name);
    let condition = json!({"type": "Net", "status": status, "reason": "R", "message": "", "lastTransitionTime": LONG_AGO});
    cluster["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(condition);
    fixture.host.seed(&CLUSTERS, cluster);
}

// proves: TNT-adds, TNT-removes, TNT-stays, TNT-targets, TNT-triggers
#[tokio::test(start_paused = true)]
async fn taints_follow_conditions_and_policies() {
    let fixture = fixture(true);
    network(&fixture, "a", "False");
    network(&fixture, "b", "False");
    fixture.wait_until_idle().await;
    fixture.host.seed(&TAINT_POLICIES, policy("net"));
    let tainted = fixture
        .wait_for_cluster("a", |c| taint_keys(c) == ["net"])
        .await;
    assert!(tainted["spec"]["taints"][0]["timeAdded"].is_string());
    // A changed policy adds its taints; those it added before stay.
    fixture.host.seed(&TAINT_POLICIES, policy("net2"));
    fixture
        .wait_for_cluster("a", |c| taint_keys(c) == ["net", "net2"])
        .await;
    assert_eq!(taint_keys(&fixture.cluster("b")), [] as [&str; 0]);
    let mut well = fixture.cluster("a");
    well["status"]["conditions"][1]["status"] = "True".into();
    fixture.host.seed(&CLUSTERS, well);
    fixture
        .wait_for_cluster("a", |c| taint_keys(c) == ["net"])
        .await;
    // The taints of a deleted policy stay too.
    fixture.host.remove(&TAINT_POLICIES, "", "p");
    fixture.wait_until_idle().await;
    assert_eq!(taint_keys(&fixture.cluster("a")), ["net"]);
    fixture.tasks.stop().await;
}

// proves: TNT-gate
#[tokio::test(start_paused = true)]
async fn without_the_gate_policies_do_nothing() {
    let fixture = fixture(false);
    network(&fixture, "a", "False");
    fixture.host.seed(&TAINT_POLICIES, policy("net"));
    fixture.wait_until_idle().await;
    assert_eq!(taint_keys(&fixture.cluster("a")), [] as [&str; 0]);
    fixture.tasks.stop().await;
}

// proves: TNT-event, TNT-lock
#[tokio::test(start_paused = true)]
async fn taint_changes_are_recorded_as_events() {
    let fixture = ClustersFixture::with_events(ClusterControllersSettings {
        gates: FeatureGates::default().with_feature(KarmadaFeature::Failover, true),
        ..ClusterControllersSettings::default()
    });
    network(&fixture, "a", "False");
    fixture.wait_until_idle().await;
    let (failing, raced) = (Arc::new(AtomicBool::new(true)), AtomicBool::new(false));
    let (fails, host) = (Arc::clone(&failing), Arc::downgrade(&fixture.host));
    fixture.host.on_call(move |call| {
        if call.verb != "patch" || call.name != "a" {
            return None;
        }
        if fails.load(Ordering::SeqCst) {
            return Some(Status::internal("not now").into());
        }
        // Another writer is faster once; its taint stays.
        if !raced.swap(true, Ordering::SeqCst) {
            let host = host.upgrade()?;
            let mut cluster = host.get_object(&CLUSTERS, "", "a")?;
            cluster["spec"]["taints"] = json!([{"key": "own", "effect": "NoSchedule"}]);
            host.seed(&CLUSTERS, cluster);
        }
        None
    });
    fixture.host.seed(&TAINT_POLICIES, policy("net"));
    fixture.wait_until_idle().await;
    let (kind, text) = &fixture.recorded_events("TaintClusterFailed")[0];
    assert!(
        kind == "Cluster" && text.contains("not now"),
        "{kind} {text}"
    );
    failing.store(false, Ordering::SeqCst);
    fixture
        .wait_for_cluster("a", |c| taint_keys(c) == ["own", "net"])
        .await;
    fixture.wait_until_idle().await;
    let heard = fixture.recorded_events("TaintClusterSucceed");
    assert_eq!(heard.len(), 1, "{heard:?}");
    let (kind, text) = &heard[0];
    assert_eq!(kind, "Cluster");
    assert!(text.starts_with("Update Cluster(a) with taints("), "{text}");
    fixture.tasks.stop().await;
}

// proves: TNT-targets, TNT-triggers
#[tokio::test(start_paused = true)]
async fn a_new_cluster_is_tainted_by_existing_policies() {
    let fixture = fixture(true);
    fixture.host.seed(&TAINT_POLICIES, policy("net"));
    let mut everywhere = policy("all");
    everywhere["metadata"]["name"] = "everywhere".into();
    everywhere["spec"]["targetClusters"] = Value::Null;
    fixture.host.seed(&TAINT_POLICIES, everywhere);
    fixture.wait_until_idle().await;
    for (name, expected) in [("a", vec!["all", "net"]), ("b", vec!["all"])] {
        network(&fixture, name, "False");
        fixture
            .wait_for_cluster(name, |c| {
                let mut keys = taint_keys(c);
                keys.sort();
                keys == expected
            })
            .await;
    }
    fixture.tasks.stop().await;
}

/// The cached Cluster lacks the taint all the while.
// proves: TNT-own-writes
#[tokio::test(start_paused = true)]
async fn a_changed_policy_removes_a_taint_whose_event_is_late() {
    let fixture = fixture(true);
    network(&fixture, "a", "False");
    fixture.wait_until_idle().await;
    fixture.host.pause_watches(&CLUSTERS);
    let adds = policy("net");
    let mut removes = adds.clone();
    removes["spec"]["addOnConditions"] = adds["spec"]["removeOnConditions"].clone();
    removes["spec"]["removeOnConditions"] = adds["spec"]["addOnConditions"].clone();
    fixture.host.seed(&TAINT_POLICIES, adds);
    fixture
        .wait_for_cluster("a", |c| taint_keys(c) == ["net"])
        .await;
    fixture.host.seed(&TAINT_POLICIES, removes);
    fixture
        .wait_for_cluster("a", |c| taint_keys(c).is_empty())
        .await;
    fixture.host.resume_watches(&CLUSTERS);
    fixture.tasks.stop().await;
}
