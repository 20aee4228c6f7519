//! Replicas are divided by the capacity of single nodes, not by the cluster's sums.

use std::cell::Cell;
use std::path::Path;

use harness::process::ServerProcess;
use serde_json::{Value, json};

use crate::fleet::{BINARY, FleetFixture, find_condition, run_with_kubeconfig, wait_until};
use crate::objects::{BINDINGS, NODES, deployment, policy};

// proves: EST-own, EST-flags
#[tokio::test]
async fn replicas_follow_the_nodes_that_match_the_workload() {
    let ns = "estimates";
    let fleet = FleetFixture::with_flags(&["--enable-scheduler-estimator"], ns).await;
    let control = &fleet.control;
    for (cluster, nodes) in [("member1", 1), ("member2", 2)] {
        let member = fleet.member(cluster);
        for node in member.list(&NODES, "").await.iter().take(nodes) {
            let name = node["metadata"]["name"].as_str().unwrap();
            let label = json!({"metadata": {"labels": {"disk": "fast"}}});
            member.merge_patch(&NODES, "", name, label).await;
        }
    }
    let mut by_room = policy(ns, "web", &deployment(ns, "", 3), &[]);
    by_room["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    by_room["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    control.create(by_room).await;
    // The control plane may see the labels a moment later.
    let attempt = Cell::new(0);
    let decided = async || {
        attempt.set(attempt.get() + 1);
        let name = format!("web-{}", attempt.get());
        let mut web = deployment(ns, &name, 3);
        let pod = &mut web["spec"]["template"]["spec"];
        pod["nodeSelector"] = json!({"disk": "fast"});
        pod["containers"][0]["resources"] = json!({"requests": {"cpu": "10m"}});
        control.create(web).await;
        let binding = format!("{name}-deployment");
        let is_decided = |b: &Value| find_condition(b, "Scheduled")["status"].is_string();
        control
            .wait_until(&BINDINGS, ns, &binding, "decided", is_decided)
            .await
    };
    let by_nodes = json!([{"name": "member1", "replicas": 1}, {"name": "member2", "replicas": 2}]);
    wait_until("replicas by nodes", async || {
        decided().await["spec"]["clusters"] == by_nodes
    })
    .await;
    let name = format!("deploy/web-{}", attempt.get());
    let arguments = ["why", &name, "-n", ns, "-o", "wide"];
    let (code, output) = run_with_kubeconfig(&fleet.kubeconfig(), &arguments).await;
    assert_eq!(code, Some(0), "{output}");
    let row = output.lines().find(|line| line.starts_with("member3"));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert!(words.contains(&"Nodes") && words[4] == "0", "{output}");
}

/// Starts `flotilla estimator` beside member1, with a certificate of its own. Returns it with
/// its port.
async fn start_estimator(fleet: &FleetFixture, dir: &Path) -> (ServerProcess, u16) {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("tls.crt"), pair.cert.pem()).unwrap();
    std::fs::write(dir.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    let member = fleet.kubeconfig().with_file_name("member1/kubeconfig");
    let [member, certificate, key] =
        [member, dir.join("tls.crt"), dir.join("tls.key")].map(|path| path.display().to_string());
    let log = dir.join("log");
    let start = move || {
        let arguments = [
            "estimator",
            "--cluster-name=member1",
            "--server-port=0",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--insecure-skip-grpc-client-verify",
            "--kubeconfig",
            &member,
            "--grpc-auth-cert-file",
            &certificate,
            "--grpc-auth-key-file",
            &key,
        ];
        ServerProcess::start(BINARY, &arguments, &log)
    };
    let (process, address) = tokio::task::spawn_blocking(start).await.unwrap();
    let (_, port) = address.rsplit_once(':').unwrap();
    (process, port.parse().unwrap())
}

// proves: EST-server, EST-service
#[tokio::test]
async fn the_scheduler_asks_the_estimator_beside_a_member() {
    let (ns, dir) = ("estimator-server", tempfile::tempdir().unwrap());
    let flags = [
        "--enable-scheduler-estimator",
        "--insecure-skip-estimator-verify",
    ];
    let fleet = FleetFixture::with_flags(&flags, ns).await;
    let (estimator, port) = start_estimator(&fleet, dir.path()).await;
    let control = &fleet.control;
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "karmada-scheduler-estimator-member1", "namespace": "karmada-system"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1",
                 "ports": [{"port": 10352, "targetPort": port}]}});
    control.create(service).await;
    let mut by_room = policy(ns, "web", &deployment(ns, "", 3), &[]);
    by_room["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    by_room["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    control.create(by_room).await;
    // The control plane may connect to the estimator a moment later.
    let attempt = Cell::new(0);
    wait_until("an estimate of the estimator", async || {
        attempt.set(attempt.get() + 1);
        let name = format!("web-{}", attempt.get());
        let mut web = deployment(ns, &name, 3);
        // All nodes lack the resource, so that the estimators decide, not the cluster's sums.
        web["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "none"});
        control.create(web).await;
        let binding = format!("{name}-deployment");
        let is_decided = |b: &Value| find_condition(b, "Scheduled")["status"].is_string();
        control
            .wait_until(&BINDINGS, ns, &binding, "decided", is_decided)
            .await;
        let template = format!("deploy/{name}");
        let arguments = ["why", &template, "-n", ns, "-o", "wide"];
        let (_, output) = run_with_kubeconfig(&fleet.kubeconfig(), &arguments).await;
        let row = output.lines().find(|line| line.starts_with("member1"));
        row.is_some_and(|row| row.split_whitespace().any(|word| word == "Estimator"))
    })
    .await;
    tokio::task::spawn_blocking(|| estimator.stop())
        .await
        .unwrap();
}
