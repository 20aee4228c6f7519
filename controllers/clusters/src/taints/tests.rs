//! Taints that follow policies.

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

#[tokio::test(start_paused = true)]
async fn without_the_gate_policies_do_nothing() {
    let lab = lab(false);
    network(&lab, "a", "False");
    lab.host.seed(&TAINT_POLICIES, policy("net"));
    lab.settle().await;
    assert_eq!(taints(&lab.cluster("a")), [] as [&str; 0]);
    lab.tasks.stop().await;
}
