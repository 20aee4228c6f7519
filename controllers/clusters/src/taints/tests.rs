//! Taints that follow policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use machinery::Status;
use openapi::karmada::resources::{CLUSTERS, TAINT_POLICIES};
use openapi::karmada::{FeatureGates, Gate};
use serde_json::{Value, json};

use crate::lab::{Lab, taints};
use crate::start::Options;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";

fn lab(gate: bool) -> Lab {
    Lab::with(Options {
        gates: FeatureGates::default().with(Gate::Failover, gate),
        ..Options::default()
    })
}

fn policy(key: &str) -> Value {
    let when = |status: &str| json!([{"conditionType": "Net", "operator": "In", "statusValues": [status]}]);
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "metadata": {"name": "p"},
           "spec": {"targetClusters": {"clusterNames": ["a"]}, "addOnConditions": when("False"),
                    "removeOnConditions": when("True"), "taints": [{"key": key, "effect": "NoExecute"}]}})
}

/// A cluster that is Ready, and says so much of its network.
fn network(lab: &Lab, name: &str, status: &str) {
    lab.told(name, "True", LONG_AGO);
    let mut cluster = lab.cluster(name);
    let told = json!({"type": "Net", "status": status, "reason": "R", "message": "", "lastTransitionTime": LONG_AGO});
    cluster["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(told);
    lab.host.seed(&CLUSTERS, cluster);
}

// proves: TNT-adds, TNT-removes, TNT-stays, TNT-targets, TNT-triggers
#[tokio::test(start_paused = true)]
async fn taints_follow_conditions_and_policies() {
    let lab = lab(true);
    network(&lab, "a", "False");
    network(&lab, "b", "False");
    lab.settle().await;
    lab.host.seed(&TAINT_POLICIES, policy("net"));
    let tainted = lab.until("a", |c| taints(c) == ["net"]).await;
    assert!(tainted["spec"]["taints"][0]["timeAdded"].is_string());
    // A changed policy adds; what it had added stays.
    lab.host.seed(&TAINT_POLICIES, policy("net2"));
    lab.until("a", |c| taints(c) == ["net", "net2"]).await;
    assert_eq!(taints(&lab.cluster("b")), [] as [&str; 0]);
    let mut well = lab.cluster("a");
    well["status"]["conditions"][1]["status"] = "True".into();
    lab.host.seed(&CLUSTERS, well);
    lab.until("a", |c| taints(c) == ["net"]).await;
    // So does what a policy that goes has put there.
    lab.host.remove(&TAINT_POLICIES, "", "p");
    lab.settle().await;
    assert_eq!(taints(&lab.cluster("a")), ["net"]);
    lab.tasks.stop().await;
}

// proves: TNT-gate
#[tokio::test(start_paused = true)]
async fn without_the_gate_policies_do_nothing() {
    let lab = lab(false);
    network(&lab, "a", "False");
    lab.host.seed(&TAINT_POLICIES, policy("net"));
    lab.settle().await;
    assert_eq!(taints(&lab.cluster("a")), [] as [&str; 0]);
    lab.tasks.stop().await;
}

// proves: TNT-told, TNT-lock
#[tokio::test(start_paused = true)]
async fn taints_that_are_written_are_told() {
    let lab = Lab::telling(Options {
        gates: FeatureGates::default().with(Gate::Failover, true),
        ..Options::default()
    });
    network(&lab, "a", "False");
    lab.settle().await;
    let (failing, raced) = (Arc::new(AtomicBool::new(true)), AtomicBool::new(false));
    let (fails, host) = (Arc::clone(&failing), Arc::downgrade(&lab.host));
    lab.host.on_call(move |call| {
        if call.verb != "patch" || call.name != "a" {
            return None;
        }
        if fails.load(Ordering::SeqCst) {
            return Some(Status::internal("not now").into());
        }
        // Somebody is faster, once: what he writes stays.
        if !raced.swap(true, Ordering::SeqCst) {
            let host = host.upgrade()?;
            let mut cluster = host.object(&CLUSTERS, "", "a")?;
            cluster["spec"]["taints"] = json!([{"key": "own", "effect": "NoSchedule"}]);
            host.seed(&CLUSTERS, cluster);
        }
        None
    });
    lab.host.seed(&TAINT_POLICIES, policy("net"));
    lab.settle().await;
    let (kind, text) = &lab.heard("TaintClusterFailed")[0];
    assert!(
        kind == "Cluster" && text.contains("not now"),
        "{kind} {text}"
    );
    failing.store(false, Ordering::SeqCst);
    lab.until("a", |c| taints(c) == ["own", "net"]).await;
    lab.settle().await;
    let heard = lab.heard("TaintClusterSucceed");
    assert_eq!(heard.len(), 1, "{heard:?}");
    let (kind, text) = &heard[0];
    assert_eq!(kind, "Cluster");
    assert!(text.starts_with("Update Cluster(a) with taints("), "{text}");
    lab.tasks.stop().await;
}

// proves: TNT-targets, TNT-triggers
#[tokio::test(start_paused = true)]
async fn a_new_cluster_is_tainted_by_policies_that_are_there() {
    let lab = lab(true);
    lab.host.seed(&TAINT_POLICIES, policy("net"));
    let mut everywhere = policy("all");
    everywhere["metadata"]["name"] = "everywhere".into();
    everywhere["spec"]["targetClusters"] = Value::Null;
    lab.host.seed(&TAINT_POLICIES, everywhere);
    lab.settle().await;
    for (name, expected) in [("a", vec!["all", "net"]), ("b", vec!["all"])] {
        network(&lab, name, "False");
        lab.until(name, |c| {
            let mut keys = taints(c);
            keys.sort();
            keys == expected
        })
        .await;
    }
    lab.tasks.stop().await;
}
