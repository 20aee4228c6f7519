//! The detector of service name resolution in a member, and what the condition that it reports
//! causes.

use harness::process::ServerProcess;
use serde_json::{Value, json};

use crate::flow::fleet::{BINARY, FleetFixture, find_condition};
use crate::flow::objects::{CLUSTERS, NODES};

const CONDITION: &str = "ServiceDomainNameResolutionReady";

/// Starts a detector on a node of member1, which looks a name up.
async fn start_detector(fleet: &FleetFixture, node: &str, name: &str) -> ServerProcess {
    let control = fleet.kubeconfig();
    let member = control.with_file_name("member1/kubeconfig");
    let log = control.with_file_name("detector.log");
    let arguments = [
        "service-name-resolution-detector".to_owned(),
        "--cluster-name=member1".to_owned(),
        "--coredns-detect-period=500ms".to_owned(),
        "--coredns-failure-threshold=1s".to_owned(),
        "--coredns-success-threshold=1s".to_owned(),
        "--leader-elect-retry-period=200ms".to_owned(),
        format!("--host-name={node}"),
        format!("--coredns-lookup-name={name}"),
        format!("--host-kubeconfig={}", control.display()),
        format!("--kubeconfig={}", member.display()),
    ];
    let start = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ServerProcess::start(BINARY, &arguments, &log).0
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

async fn stop(detector: ServerProcess) {
    tokio::task::spawn_blocking(|| detector.stop())
        .await
        .unwrap();
}

// proves: SND-node, SND-cluster, SND-reactions
#[tokio::test]
async fn a_cluster_that_resolves_no_names_is_tainted_and_remedied() {
    let ns = "name-resolution";
    // ClusterTaintPolicies need the gate.
    let fleet = FleetFixture::with_flags(&["--feature-gates=Failover=true"], ns).await;
    let (control, member) = (&fleet.control, fleet.member("member1"));
    let match_failed = json!({"clusterConditionMatch":
        {"conditionType": CONDITION, "operator": "Equal", "conditionStatus": "False"}});
    control
        .create(
            json!({"apiVersion": "remedy.karmada.io/v1alpha1", "kind": "Remedy",
            "metadata": {"name": "names"},
            "spec": {"actions": ["TrafficControl"], "decisionMatches": [match_failed]}}),
        )
        .await;
    let when = |status: &str| json!([{"conditionType": CONDITION, "operator": "In", "statusValues": [status]}]);
    control
        .create(
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy",
            "metadata": {"name": "names"},
            "spec": {"addOnConditions": when("False"), "removeOnConditions": when("True"),
                "taints": [{"key": "names", "effect": "NoSchedule"}]}}),
        )
        .await;
    // The detectors of the other nodes have reported failures.
    let nodes = member.list(&NODES, "").await;
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
    for node in &nodes[1..] {
        let mut conditions = node["status"]["conditions"].clone();
        let failed = json!({"type": CONDITION, "status": "False",
            "reason": "ServiceDomainNameResolutionFailed", "message": "lookup kubernetes.default",
            "lastHeartbeatTime": "2100-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        conditions.as_array_mut().unwrap().push(failed);
        member
            .patch_status(node, json!({"conditions": conditions}))
            .await;
    }
    let own_node = name(&nodes[0]);
    let wait_for = async |status: &str, fits: fn(&Value) -> bool| {
        let of_node = |node: &Value| find_condition(node, CONDITION)["status"] == status;
        member
            .wait_until(&NODES, "", &own_node, "the condition of the node", of_node)
            .await;
        let of_cluster = |cluster: &Value| {
            find_condition(cluster, CONDITION)["status"] == status && fits(cluster)
        };
        control
            .wait_until(&CLUSTERS, "", "member1", "the condition", of_cluster)
            .await
    };
    let is_tainted = |cluster: &Value| {
        let taints = cluster["spec"]["taints"].as_array().into_iter().flatten();
        let mut taints = taints.map(|taint| &taint["key"]);
        taints.any(|key| key == "names")
            && cluster["status"]["remedyActions"] == json!(["TrafficControl"])
    };
    let is_free = |cluster: &Value| {
        let taints = cluster["spec"]["taints"].as_array().into_iter().flatten();
        let mut taints = taints.map(|taint| &taint["key"]);
        !taints.any(|key| key == "names") && cluster["status"]["remedyActions"].is_null()
    };
    // One node that resolves names is enough.
    let detector = start_detector(&fleet, &own_node, "localhost").await;
    let ready = wait_for("True", is_free).await;
    assert_eq!(
        find_condition(&ready, CONDITION)["message"],
        "service domain name resolution is ready"
    );
    stop(detector).await;

    let detector = start_detector(&fleet, &own_node, "kubernetes.invalid").await;
    let failed = wait_for("False", is_tainted).await;
    let condition = find_condition(&failed, CONDITION);
    assert_eq!(condition["reason"], "ServiceDomainNameResolutionFailed");
    assert_eq!(find_condition(&failed, "Ready")["status"], "True");
    stop(detector).await;

    let detector = start_detector(&fleet, &own_node, "localhost").await;
    wait_for("True", is_free).await;
    stop(detector).await;
}
