//! A member that dies, comes back, hangs and is unjoined.

use std::path::Path;
use std::process::Command;

use harness::ServerProcess;
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, BINARY, FleetFixture, find_condition, run_flotilla};
use crate::flow::objects::{
    BINDINGS, CLUSTERS, DEPLOYMENTS, NAMESPACES, WORKS, deployment, execution_space, policy,
};

const MEMBER_NAME: &str = "fourth";
/// More than any controller has workers or any pool has connections.
const HANGING_DEPLOYMENTS: usize = 40;
const DEPLOYMENT_NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub(crate) async fn start_member(dir: &Path) -> ServerProcess {
    let dir = dir.to_owned();
    let start = move || ServerProcess::start_member(BINARY, &dir, 2, &[]);
    tokio::task::spawn_blocking(start).await.unwrap()
}

// proves: EXE-not-ready
#[tokio::test]
async fn dead_member_delays_no_other_member_and_catches_up() {
    let ns = "outage";
    // Of its own: a member more, which is dead, concerns the tests beside this one.
    let fleet = FleetFixture::with_flags(&[], ns).await;
    let control = &fleet.control;
    let dir = tempfile::tempdir().unwrap();
    let process = start_member(dir.path()).await;
    let kubeconfig = dir.path().join("kubeconfig");
    let own = fleet.up.dir().join("kubeconfig").display().to_string();
    let member_kubeconfig = kubeconfig.display().to_string();
    run_flotilla(&[
        "join",
        MEMBER_NAME,
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--kubeconfig",
        &own,
    ])
    .await;
    control.wait_until_cluster_ready(MEMBER_NAME).await;
    let mut everything = policy(ns, "all", &deployment(ns, "", 1), &["member1", MEMBER_NAME]);
    everything["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    control.create(everything).await;
    control.create(deployment(ns, "before", 1)).await;
    let fourth = ApiServerClient::connect(MEMBER_NAME, &kubeconfig);
    fourth.wait_until_exists(&DEPLOYMENTS, ns, "before").await;
    wait_until_healthy(control, ns, "before").await;

    drop(process);
    control
        .merge_patch(&DEPLOYMENTS, ns, "before", json!({"spec": {"replicas": 2}}))
        .await;
    for name in DEPLOYMENT_NAMES {
        control.create(deployment(ns, name, 1)).await;
    }
    let one = fleet.member("member1");
    for name in DEPLOYMENT_NAMES {
        one.wait_until(&DEPLOYMENTS, ns, name, "ready", is_ready)
            .await;
        let binding = format!("{name}-deployment");
        control
            .wait_until(
                &BINDINGS,
                ns,
                &binding,
                "healthy in one, without the other",
                |b| {
                    let of = |cluster: &str| {
                        let all = b["status"]["aggregatedStatus"].as_array();
                        let mut all = all.into_iter().flatten();
                        all.find(|i| i["clusterName"] == cluster).cloned()
                    };
                    of("member1").is_some_and(|i| i["health"] == "Healthy")
                        && of(MEMBER_NAME).is_some_and(|i| i["applied"] != true)
                        && find_condition(b, "FullyApplied")["status"] == "False"
                },
            )
            .await;
        let work = karmada_api::names::work_name("Deployment", name, ns);
        let work = control
            .wait_until(
                &WORKS,
                &execution_space(MEMBER_NAME),
                &work,
                "failed",
                |w| find_condition(w, "Applied")["status"] == "False",
            )
            .await;
        let message = find_condition(&work, "Applied")["message"]
            .as_str()
            .unwrap();
        assert!(
            message.starts_with("Failed to apply all manifests (0/1): "),
            "{message}"
        );
    }

    let process = start_member(dir.path()).await;
    for name in DEPLOYMENT_NAMES {
        fourth.wait_until_exists(&DEPLOYMENTS, ns, name).await;
        wait_until_healthy(control, ns, name).await;
    }
    fourth
        .wait_until(&DEPLOYMENTS, ns, "before", "scaled", |d| {
            d["spec"]["replicas"] == 2
        })
        .await;
    control.wait_until_cluster_ready(MEMBER_NAME).await;

    // A member that accepts connections and never answers delays no other member either,
    // however many calls to it are open.
    send_signal(&process, "-STOP");
    let many: Vec<String> = (0..HANGING_DEPLOYMENTS)
        .map(|n| format!("hanging-{n}"))
        .collect();
    for name in &many {
        control.create(deployment(ns, name, 1)).await;
    }
    for name in &many {
        one.wait_until(&DEPLOYMENTS, ns, name, "ready", is_ready)
            .await;
        control
            .wait_until(&DEPLOYMENTS, ns, name, "ready in one", is_ready)
            .await;
    }
    send_signal(&process, "-CONT");
    for name in &many {
        fourth.wait_until_exists(&DEPLOYMENTS, ns, name).await;
        wait_until_healthy(control, ns, name).await;
    }

    run_flotilla(&[
        "unjoin",
        MEMBER_NAME,
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--kubeconfig",
        &own,
    ])
    .await;
    assert_eq!(control.get(&CLUSTERS, "", MEMBER_NAME).await, None);
    control
        .wait_until_deleted(&NAMESPACES, "", &execution_space(MEMBER_NAME))
        .await;
    for name in DEPLOYMENT_NAMES {
        fourth.wait_until_deleted(&DEPLOYMENTS, ns, name).await;
    }
    // The service accounts are deleted with their namespace.
    fourth
        .wait_until_deleted(&NAMESPACES, "", "karmada-cluster")
        .await;
    control
        .wait_until(&BINDINGS, ns, "a-deployment", "left alone", |b| {
            b["spec"]["clusters"]
                .as_array()
                .is_some_and(|c| c.len() == 1)
        })
        .await;
}

fn is_ready(deployment: &Value) -> bool {
    deployment["status"]["readyReplicas"] == 1
}

fn send_signal(process: &ServerProcess, signal: &str) {
    let id = process.child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success(), "kill {signal} {id}");
}

async fn wait_until_healthy(control: &ApiServerClient, ns: &str, name: &str) {
    let binding = format!("{name}-deployment");
    control
        .wait_until(&BINDINGS, ns, &binding, "healthy in both", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            all.is_some_and(|all| all.len() == 2 && all.iter().all(|i| i["health"] == "Healthy"))
        })
        .await;
}
