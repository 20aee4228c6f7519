//! A member in pull mode behind a host: a token, the registration, its agent, and the removal.
//! The host has no `kube-public/cluster-info`, as one without kubeadm.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::ResourcePath;
use harness::api_server_client::wait_until;
use harness::objects::{
    CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, SECRETS, config_map, deployment, policy,
};
use harness::{ApiServerClient, ServerProcess};
use serde_json::Value;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{BINARY, path_string, run_flotilla};
use crate::aggregated::simulated_member::SimulatedMember;

const NAME: &str = "edge";
const AGENTS_MANIFEST: &str = "../../manifests/install/agents.yaml";

/// Starts the agent with the credentials that the registration has left in the member.
async fn start_agent(member: &SimulatedMember) -> ServerProcess {
    let secret = member
        .server
        .wait_until_exists(&SECRETS, "karmada-system", "karmada-kubeconfig")
        .await;
    let data = secret["data"]["karmada-kubeconfig"].as_str().unwrap();
    let file: PathBuf = member.dir.path().join("agent-kubeconfig");
    std::fs::write(&file, STANDARD.decode(data).unwrap()).unwrap();
    let (control, member_kubeconfig) = (path_string(&file), member.kubeconfig());
    let log = member.dir.path().join("agent.log");
    let start = move || {
        let arguments = [
            "agent",
            "--cluster-name",
            NAME,
            "--karmada-kubeconfig",
            &control,
            "--kubeconfig",
            &member_kubeconfig,
            // Other agents run beside it.
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ];
        ServerProcess::start(BINARY, &arguments, &log).0
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Creates what `flotilla install` creates for agents.
pub(crate) async fn install_agent_roles(host: &ApiServerClient) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(AGENTS_MANIFEST);
    let text = std::fs::read_to_string(file).unwrap();
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        // The registration of a cluster in push mode has created the namespace of Secrets.
        match host.try_create(object.clone()).await {
            Err(error) if object["kind"] == "Namespace" && error.is_already_exists() => {}
            created => _ = created.unwrap_or_else(|error| panic!("{error}: {object:#}")),
        }
    }
}

/// The words of the command that `token create` prints.
async fn register_command(control: &str) -> Vec<String> {
    let create = [
        "token",
        "create",
        "--print-register-command",
        "--kubeconfig",
    ];
    let printed = run_flotilla(&[&create[..], &[control]].concat()).await;
    let command = printed.lines().find(|l| l.starts_with("flotilla register"));
    let words = command.unwrap().split_whitespace().skip(1);
    words.map(str::to_owned).collect()
}

/// Reads, logs and exec in the member, through the host, Flotilla and the tunnel of the agent.
async fn assert_proxied(control_plane: &AggregatedControlPlane, member: &SimulatedMember) {
    let server = &control_plane.host.server;
    let direct = std::fs::read_to_string(&control_plane.host.kubeconfig).unwrap();
    let proxied = format!("{server}/apis/cluster.karmada.io/v1alpha1/clusters/{NAME}/proxy");
    let kubeconfig = member.dir.path().join("tunneled.kubeconfig");
    std::fs::write(&kubeconfig, direct.replace(server, &proxied)).unwrap();
    let tunneled = ApiServerClient::connect("tunneled", &kubeconfig);
    wait_until("the tunnel", async || {
        let at = ResourcePath::object(&NAMESPACES, "", "default");
        tunneled.api.get(at).await.is_ok()
    })
    .await;
    tunneled.create(deployment("default", "web", 1)).await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 1;
    tunneled
        .wait_until(&DEPLOYMENTS, "default", "web", "ready", ready)
        .await;
    let pods = tunneled.list(&PODS, "default").await;
    let pod = pods[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let Some(programs) = harness::tools(["kubectl-old", "kubectl-new"]) else {
        return;
    };
    for program in programs {
        let run = |line: String| {
            let mut command = Command::new(&program);
            command.arg("--kubeconfig").arg(&kubeconfig);
            command.args(line.split(' ')).env("HOME", member.dir.path());
            let out = harness::process::run(&command);
            assert!(out.status.success(), "{line}: {out:?}");
            String::from_utf8(out.stdout).unwrap()
        };
        let (log, output) = tokio::task::block_in_place(|| {
            let log = run(format!("logs {pod}"));
            (log, run(format!("exec {pod} -- say this and that")))
        });
        assert!(log.contains(&format!("default/{pod}: second 0")), "{log}");
        assert_eq!(output, "say this and that\n");
    }
}

/// Registers a member by the kubeconfig of the control plane, and starts its agent.
pub(crate) async fn register(control: &str, member: &SimulatedMember) -> ServerProcess {
    let mut words = register_command(control).await;
    let member_kubeconfig = member.kubeconfig();
    for word in ["--kubeconfig", &member_kubeconfig, "--cluster-name", NAME] {
        words.push(word.to_owned());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = run_flotilla(&words).await;
    assert!(
        output.contains("cluster(edge) is joined successfully"),
        "{output}"
    );
    start_agent(member).await
}

pub(crate) async fn run_scenario(control_plane: &AggregatedControlPlane) {
    let member = SimulatedMember::start(NAME).await;
    let host = &control_plane.client;
    install_agent_roles(host).await;
    let control = path_string(&control_plane.host.kubeconfig);
    let agent = register(&control, &member).await;
    let cluster = host.wait_until_cluster_ready(NAME).await;
    assert_eq!(cluster["spec"]["syncMode"], "Pull");
    let map = config_map("default", "settings", "v");
    host.create(policy("default", "settings", &map, &[NAME]))
        .await;
    host.create(map).await;
    let delivered = member
        .server
        .wait_until_exists(&CONFIG_MAPS, "default", "settings")
        .await;
    assert_eq!(
        delivered["data"],
        config_map("default", "settings", "v")["data"]
    );

    assert_proxied(control_plane, &member).await;

    let member_kubeconfig = member.kubeconfig();
    let files = [
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--karmada-config",
        &control,
    ];
    let output = run_flotilla(&[&["unregister", NAME][..], &files].concat()).await;
    assert!(
        output.contains("cluster(edge) is unregistered successfully"),
        "{output}"
    );
    drop(agent);
    assert_eq!(host.get(&CLUSTERS, "", NAME).await, None);
    let left = member.server.get(&CONFIG_MAPS, "default", "settings").await;
    assert_eq!(left, None);
    let left = member
        .server
        .get(&DEPLOYMENTS, "karmada-system", "karmada-agent")
        .await;
    assert_eq!(left, None);
}
