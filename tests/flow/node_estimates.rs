//! Replicas are divided by the capacity of single nodes, not by the cluster's sums.

use std::cell::Cell;
use std::path::Path;

use harness::process::ServerProcess;
use serde_json::{Value, json};

use crate::flow::cache_waits::wait_until_overrides_are_seen;
use crate::flow::fleet::{
    ApiServerClient, BINARY, FleetFixture, find_condition, run_with_kubeconfig, wait_until,
};
use crate::flow::objects::{BINDINGS, EVENTS, NODES, deployment, policy};

/// A policy that divides the replicas of all Deployments by the available replicas of clusters.
pub(crate) fn policy_by_available_replicas(ns: &str) -> Value {
    let mut by_room = policy(ns, "web", &deployment(ns, "", 3), &[]);
    by_room["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    by_room["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    by_room
}

/// Creates a Deployment with three replicas for the nodes with `disk=fast`, and waits for the
/// scheduler's decision. Returns the binding.
pub(crate) async fn decide_for_fast_nodes(
    control: &ApiServerClient,
    ns: &str,
    name: &str,
) -> Value {
    let mut object = deployment(ns, name, 3);
    let pod = &mut object["spec"]["template"]["spec"];
    pod["nodeSelector"] = json!({"disk": "fast"});
    pod["containers"][0]["resources"] = json!({"requests": {"cpu": "10m"}});
    control.create(object).await;
    let is_decided = |b: &Value| find_condition(b, "Scheduled")["status"].is_string();
    let binding = format!("{name}-deployment");
    control
        .wait_until(&BINDINGS, ns, &binding, "decided", is_decided)
        .await
}

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
    control.create(policy_by_available_replicas(ns)).await;
    // The control plane may see the labels a moment later.
    let attempt = Cell::new(0);
    let decided = async || {
        attempt.set(attempt.get() + 1);
        decide_for_fast_nodes(control, ns, &format!("web-{}", attempt.get())).await
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
    control.create(policy_by_available_replicas(ns)).await;
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

/// An override by which no node of member1 has room for a pod of a Deployment.
pub(crate) fn oversized_pods_in_member1(ns: &str, object: &Value) -> Value {
    let requests = json!({"requests": {"cpu": "1000"}});
    let resources = json!({"path": "/spec/template/spec/containers/0/resources",
        "operator": "add", "value": requests});
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "oversized", "namespace": ns},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment",
                     "name": object["metadata"]["name"]}],
                 "overrideRules": [{"targetCluster": {"clusterNames": ["member1"]},
                     "overriders": {"plaintext": [resources]}}]}})
}

/// Cordons all nodes of a member: the scheduler estimates that none of them has room.
pub(crate) async fn cordon_nodes(member: &ApiServerClient) {
    for node in member.list(&NODES, "").await {
        let name = node["metadata"]["name"].as_str().unwrap();
        let cordon = json!({"spec": {"unschedulable": true}});
        member.merge_patch(&NODES, "", name, cordon).await;
    }
}

/// The replicas of a binding that are assigned to a cluster.
pub(crate) fn replicas_in(binding: &Value, cluster: &str) -> i64 {
    let targets = binding["spec"]["clusters"].as_array();
    let mut targets = targets.into_iter().flatten();
    let target = targets.find(|target| target["name"] == cluster);
    target.map_or(0, |target| target["replicas"].as_i64().unwrap_or(0))
}

/// Creates Deployments until the scheduler divides the replicas of one between all members: it
/// knows the capacity of all then.
async fn wait_until_all_have_capacity(control: &ApiServerClient, ns: &str) {
    let attempt = Cell::new(0);
    wait_until("replicas in all members", async || {
        attempt.set(attempt.get() + 1);
        let name = format!("early-{}", attempt.get());
        control.create(deployment(ns, &name, 6)).await;
        let is_decided = |b: &Value| find_condition(b, "Scheduled")["status"].is_string();
        let binding = format!("{name}-deployment");
        let decided = control.wait_until(&BINDINGS, ns, &binding, "decided", is_decided);
        let decided = decided.await;
        ["member1", "member2", "member3"]
            .iter()
            .all(|member| replicas_in(&decided, member) > 0)
    })
    .await;
}

// proves: DES-moved, DES-events, DES-estimators
#[tokio::test]
async fn replicas_that_a_member_cannot_schedule_are_placed_elsewhere() {
    let ns = "descheduled";
    let flags = [
        "--enable-scheduler-estimator",
        "--controllers=*,descheduler",
        "--descheduling-interval=200ms",
        "--unschedulable-threshold=1s",
    ];
    let fleet = FleetFixture::with_flags(&flags, ns).await;
    let control = &fleet.control;
    let web = deployment(ns, "web", 6);
    control.create(oversized_pods_in_member1(ns, &web)).await;
    wait_until_overrides_are_seen(control, fleet.member("member1"), ns).await;
    control.create(policy_by_available_replicas(ns)).await;
    wait_until_all_have_capacity(control, ns).await;
    control.create(web).await;
    let all_ready = |binding: &Value| {
        let statuses = binding["status"]["aggregatedStatus"].as_array();
        let ready = statuses.into_iter().flatten();
        let ready = ready.filter_map(|item| item["status"]["readyReplicas"].as_i64());
        ready.sum::<i64>() == 6
    };
    control
        .wait_until(
            &BINDINGS,
            ns,
            "web-deployment",
            "replicas in member1",
            |b| replicas_in(b, "member1") > 0,
        )
        .await;
    cordon_nodes(fleet.member("member1")).await;
    let replaced = control
        .wait_until(&BINDINGS, ns, "web-deployment", "replicas elsewhere", |b| {
            all_ready(b) && replicas_in(b, "member1") == 0
        })
        .await;
    let elsewhere = replicas_in(&replaced, "member2") + replicas_in(&replaced, "member3");
    assert_eq!(elsewhere, 6, "{replaced}");
    for kind in ["ResourceBinding", "Deployment"] {
        wait_until("the event of the descheduler", async || {
            let events = control.list(&EVENTS, ns).await;
            events.iter().any(|event| {
                event["reason"] == "DescheduleBindingSucceed"
                    && event["involvedObject"]["kind"] == kind
                    && event["source"]["component"] == "karmada-descheduler"
                    && event["message"].as_str().is_some_and(|message| {
                        message.starts_with("Binding has been descheduled, ")
                            && message.contains(" in cluster(member1), ")
                    })
            })
        })
        .await;
    }
}
