//! The tunnels of an agent to two replicas behind a load balancer.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::ResourcePath;
use harness::api_server_client::wait_until;
use harness::objects::{CLUSTERS, NAMESPACES, SECRETS};
use harness::{ApiServerClient, ServerProcess};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::replicas::flotilla_process::{BINARY, FlotillaProcess};
use crate::replicas::replica_pair::{ControlPlaneMode, ReplicaPair};

const NAME: &str = "edge";
const ETCD_VERSION: &str = "3.5";

async fn run(arguments: &[&str]) -> String {
    let (code, output) = harness::process::run_to_exit(BINARY, arguments).await;
    assert_eq!(code, Some(0), "{output}");
    output
}

/// Registers the member at the load balancer; returns the kubeconfig of its agent.
async fn register(replica: &FlotillaProcess, member: &FlotillaProcess, address: &str) -> PathBuf {
    let own = replica.kubeconfig().display().to_string();
    let create = ["token", "create", "--print-register-command"];
    let printed = run(&[&create[..], &["--kubeconfig", &own]].concat()).await;
    let command = printed.lines().find(|l| l.starts_with("flotilla register"));
    let mut words: Vec<&str> = command.unwrap().split_whitespace().skip(1).collect();
    words[1] = address;
    let member_kubeconfig = member.kubeconfig().display().to_string();
    words.extend(["--kubeconfig", &member_kubeconfig, "--cluster-name", NAME]);
    run(&words).await;
    let secret = member
        .connect("member")
        .wait_until_exists(&SECRETS, "karmada-system", "karmada-kubeconfig")
        .await;
    let data = secret["data"]["karmada-kubeconfig"].as_str().unwrap();
    let file = member.kubeconfig().with_file_name("agent.kubeconfig");
    std::fs::write(&file, STANDARD.decode(data).unwrap()).unwrap();
    file
}

async fn start_agent(config: &Path, member: &FlotillaProcess) -> ServerProcess {
    start_agent_with_metrics(config, member, 0).await
}

/// Serves metrics at a port of loopback; 0: none.
async fn start_agent_with_metrics(
    config: &Path,
    member: &FlotillaProcess,
    port: u16,
) -> ServerProcess {
    let metrics = match port {
        0 => "--metrics-bind-address=0".to_owned(),
        port => format!("--metrics-bind-address=127.0.0.1:{port}"),
    };
    let config = config.display().to_string();
    let member_kubeconfig = member.kubeconfig();
    let start = move || {
        let kubeconfig = member_kubeconfig.display().to_string();
        let arguments = [
            "agent",
            "--cluster-name",
            NAME,
            "--karmada-kubeconfig",
            &config,
            "--kubeconfig",
            &kubeconfig,
            &metrics,
            "--health-probe-bind-address=0",
        ];
        ServerProcess::start(
            BINARY,
            &arguments,
            &member_kubeconfig.with_file_name("agent.log"),
        )
        .0
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// A client of the member through one replica.
fn through(replica: &FlotillaProcess) -> ApiServerClient {
    let direct = std::fs::read_to_string(replica.kubeconfig()).unwrap();
    let server = format!("https://{}", replica.address);
    let proxied = format!("{server}/apis/cluster.karmada.io/v1alpha1/clusters/{NAME}/proxy");
    let file = replica.kubeconfig().with_file_name("tunneled.kubeconfig");
    std::fs::write(&file, direct.replace(&server, &proxied)).unwrap();
    ApiServerClient::connect("tunneled", &file)
}

async fn wait_until_reached(replica: &FlotillaProcess) {
    let member = through(replica);
    wait_until("the tunnel", async || {
        let at = ResourcePath::object(&NAMESPACES, "", "default");
        member.api.get(at).await.is_ok()
    })
    .await;
}

// proves: TUN-replicas
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_replica_reaches_a_member_in_pull_mode() {
    let Some(mut pair) = ReplicaPair::start(ControlPlaneMode::Standalone, ETCD_VERSION, &[]).await
    else {
        return;
    };
    let member = tokio::task::spawn_blocking(FlotillaProcess::member);
    let member = member.await.unwrap();
    let balancer = pair.load_balancer();
    let config = register(&pair.replicas[0], &member, &balancer.address()).await;
    let _agent = start_agent(&config, &member).await;
    for replica in &pair.replicas {
        wait_until_reached(replica).await;
    }
    // A replica that comes back gets a tunnel again, while the other one keeps its own.
    pair.replicas[1].kill();
    pair.control(0).wait_until_cluster_ready(NAME).await;
    wait_until_reached(&pair.replicas[0]).await;
    let replica = &mut pair.replicas[1];
    tokio::task::block_in_place(|| replica.restart());
    for replica in &pair.replicas {
        wait_until_reached(replica).await;
    }
}

/// How often replicas have refused the agent because it has a tunnel to them: it asks ever less
/// often.
async fn count_refusals(port: u16) -> u64 {
    let line = "flotilla_agent_tunnel_dials_total{result=\"attached\"} ";
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    let Ok(mut stream) = stream else { return 0 };
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let value = text
        .lines()
        .find_map(|metric_line| metric_line.strip_prefix(line));
    value.map_or(0, |value| value.parse().unwrap())
}

// proves: TUN-new-replica
#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_replica_asks_for_its_tunnel() {
    let Some(mut pair) = ReplicaPair::start(ControlPlaneMode::Standalone, ETCD_VERSION, &[]).await
    else {
        return;
    };
    let member = tokio::task::spawn_blocking(FlotillaProcess::member);
    let member = member.await.unwrap();
    let balancer = pair.load_balancer();
    let config = register(&pair.replicas[0], &member, &balancer.address()).await;
    let port = harness::port::free_port();
    let _agent = start_agent_with_metrics(&config, &member, port).await;
    for replica in &pair.replicas {
        wait_until_reached(replica).await;
    }
    pair.replicas[1].kill();
    // Each refusal doubles the time until the next attempt, which is 16 s then, or more.
    let before = count_refusals(port).await;
    wait_until("rare attempts", async || {
        count_refusals(port).await >= before + 5
    })
    .await;
    let replica = &mut pair.replicas[1];
    tokio::task::block_in_place(|| replica.restart());
    let is_requested = |cluster: &serde_json::Value| {
        let annotations = &cluster["metadata"]["annotations"];
        annotations["flotilla.io/tunnel-requested-by"].is_string()
    };
    pair.control(0)
        .wait_until(&CLUSTERS, "", NAME, "asked", is_requested)
        .await;
    wait_until_reached(&pair.replicas[1]).await;
}
