//! A member that dies, comes back, hangs and is unjoined.

use std::path::Path;
use std::process::Command;

use harness::Process;
use serde_json::{Value, json};

use crate::fleet::{BINARY, Fleet, Server, condition, flotilla};
use crate::objects::{
    BINDINGS, CLUSTERS, DEPLOYMENTS, NAMESPACES, WORKS, deployment, policy, works_of,
};

const NAME: &str = "fourth";
/// More than any controller has workers or any pool has connections.
const HANGING: usize = 40;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub(crate) async fn member(dir: &Path) -> Process {
    let path = dir.display().to_string();
    let log = dir.join("log");
    let start = move || {
        let arguments = [
            "member",
            "--nodes",
            "2",
            "--listen",
            "127.0.0.1:0",
            "--dir",
            &path,
        ];
        Process::start(BINARY, &arguments, &log).0
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

// proves: EXE-not-ready
#[tokio::test]
async fn a_dead_member_delays_nobody_and_catches_up() {
    let ns = "outage";
    let fleet = Fleet::shared(ns).await;
    let control = &fleet.control;
    let dir = tempfile::tempdir().unwrap();
    let process = member(dir.path()).await;
    let kubeconfig = dir.path().join("kubeconfig");
    let own = fleet.up.dir().join("kubeconfig").display().to_string();
    let theirs = kubeconfig.display().to_string();
    flotilla(&[
        "join",
        NAME,
        "--cluster-kubeconfig",
        &theirs,
        "--kubeconfig",
        &own,
    ])
    .await;
    control.until_ready(NAME).await;
    let mut everything = policy(ns, "all", &deployment(ns, "", 1), &["member1", NAME]);
    everything["spec"]["resourceSelectors"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment"}]);
    control.create(everything).await;
    control.create(deployment(ns, "before", 1)).await;
    let fourth = Server::connect(NAME, &kubeconfig);
    fourth.until_there(&DEPLOYMENTS, ns, "before").await;
    until_healthy(control, ns, "before").await;

    drop(process);
    control
        .merge(&DEPLOYMENTS, ns, "before", json!({"spec": {"replicas": 2}}))
        .await;
    for name in NAMES {
        control.create(deployment(ns, name, 1)).await;
    }
    let one = fleet.member("member1");
    for name in NAMES {
        one.until(&DEPLOYMENTS, ns, name, "ready", ready).await;
        let binding = format!("{name}-deployment");
        control
            .until(
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
                        && of(NAME).is_some_and(|i| i["applied"] != true)
                        && condition(b, "FullyApplied")["status"] == "False"
                },
            )
            .await;
        let work = openapi::karmada::names::work("Deployment", name, ns);
        let work = control
            .until(&WORKS, &works_of(NAME), &work, "failed", |w| {
                condition(w, "Applied")["status"] == "False"
            })
            .await;
        let why = condition(&work, "Applied")["message"].as_str().unwrap();
        assert!(
            why.starts_with("Failed to apply all manifests (0/1): "),
            "{why}"
        );
    }

    let process = member(dir.path()).await;
    for name in NAMES {
        fourth.until_there(&DEPLOYMENTS, ns, name).await;
        until_healthy(control, ns, name).await;
    }
    fourth
        .until(&DEPLOYMENTS, ns, "before", "scaled", |d| {
            d["spec"]["replicas"] == 2
        })
        .await;
    control.until_ready(NAME).await;

    // A member that accepts connections and never answers delays no other member either,
    // however many calls to it are open.
    signal(&process, "-STOP");
    let many: Vec<String> = (0..HANGING).map(|n| format!("hanging-{n}")).collect();
    for name in &many {
        control.create(deployment(ns, name, 1)).await;
    }
    for name in &many {
        one.until(&DEPLOYMENTS, ns, name, "ready", ready).await;
        control
            .until(&DEPLOYMENTS, ns, name, "ready in one", ready)
            .await;
    }
    signal(&process, "-CONT");
    for name in &many {
        fourth.until_there(&DEPLOYMENTS, ns, name).await;
        until_healthy(control, ns, name).await;
    }

    flotilla(&[
        "unjoin",
        NAME,
        "--cluster-kubeconfig",
        &theirs,
        "--kubeconfig",
        &own,
    ])
    .await;
    assert_eq!(control.get(&CLUSTERS, "", NAME).await, None);
    control.until_gone(&NAMESPACES, "", &works_of(NAME)).await;
    for name in NAMES {
        fourth.until_gone(&DEPLOYMENTS, ns, name).await;
    }
    // The service accounts are deleted with their namespace.
    fourth.until_gone(&NAMESPACES, "", "karmada-cluster").await;
    control
        .until(&BINDINGS, ns, "a-deployment", "left alone", |b| {
            b["spec"]["clusters"]
                .as_array()
                .is_some_and(|c| c.len() == 1)
        })
        .await;
}

fn ready(deployment: &Value) -> bool {
    deployment["status"]["readyReplicas"] == 1
}

fn signal(process: &Process, signal: &str) {
    let id = process.child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success(), "kill {signal} {id}");
}

async fn until_healthy(control: &Server, ns: &str, name: &str) {
    let binding = format!("{name}-deployment");
    control
        .until(&BINDINGS, ns, &binding, "healthy in both", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            all.is_some_and(|all| all.len() == 2 && all.iter().all(|i| i["health"] == "Healthy"))
        })
        .await;
}
