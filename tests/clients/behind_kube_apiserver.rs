//! Flotilla in aggregated mode behind a real kube-apiserver, and all clients on Karmada's kinds
//! there, one after another: each restarts Flotilla.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::cluster::{HOST_CONTROLLERS, KubernetesClusterOptions};
use harness::daemon::TestDir;
use harness::objects::API_SERVICES;
use harness::{ApiServerClient, EtcdCluster, KubernetesCluster, ServerProcess, etcd, port};
use karmada_api::is_karmada_group;
use serde_json::json;

use crate::aggregated::auth::grant_cluster_role;
use crate::aggregated::pull_members::install_agent_roles;
use crate::clients::fleet::FleetMembers;
use crate::clients::{BINARY, RestartableServer, client_go, fleet, kube_rs, kubectl, python};

const TOOLS: [&str; 6] = [
    "etcd-3.5",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl-1.36",
    "client-go",
    "python-clients",
];
const FLEET_USER: &str = "fleet-user";
const FLEET_PATH: &str = "/apis/search.karmada.io/v1alpha1/proxying/fleet/proxy";
const ROUTED_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

struct ServerBehindKubeApiserver {
    process: Option<ServerProcess>,
    arguments: Vec<String>,
    client: ApiServerClient,
    host: KubernetesCluster,
    dir: TestDir,
    _etcd: EtcdCluster,
}

impl ServerBehindKubeApiserver {
    async fn start() -> Option<Self> {
        harness::tools(TOOLS)?;
        let started = tokio::task::spawn_blocking(|| {
            let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
            let options = KubernetesClusterOptions {
                name: "host",
                controllers: HOST_CONTROLLERS,
                flags: &[],
            };
            Some((KubernetesCluster::start(&options, &etcd)?, etcd))
        });
        let (host, etcd) = started.await.unwrap()?;
        let client = ApiServerClient::connect("host", &host.kubeconfig);
        client.create_namespace("flotilla-system").await;
        client
            .create(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "flotilla", "namespace": "flotilla-system"},
                "spec": {"type": "ExternalName", "externalName": "localhost"}}))
            .await;
        let (dir, port) = (TestDir::new(), port::free_port());
        let arguments = [
            "serve",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data-dir",
            dir.path().to_str().unwrap(),
            "--kubeconfig",
            host.kubeconfig.to_str().unwrap(),
            "--service-port",
            &port.to_string(),
        ];
        let mut server = Self {
            process: None,
            arguments: arguments.map(str::to_owned).to_vec(),
            client,
            host,
            dir,
            _etcd: etcd,
        };
        server.restart();
        server.wait_until_routed().await;
        Some(server)
    }

    /// Waits until the host routes requests for every group of Karmada.
    async fn wait_until_routed(&self) {
        let end = Instant::now() + ROUTED_TIMEOUT;
        while !self.is_routed().await {
            assert!(Instant::now() < end, "the host does not route to Flotilla");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn is_routed(&self) -> bool {
        let mut services = self.client.list(&API_SERVICES, "").await;
        services.retain(|s| s["spec"]["group"].as_str().is_some_and(is_karmada_group));
        for service in &services {
            let spec = &service["spec"];
            let (group, version) = (spec["group"].as_str(), spec["version"].as_str());
            let path = format!("/apis/{}/{}", group.unwrap(), version.unwrap());
            if self.client.api.get_raw(&path).await.is_err() {
                return false;
            }
        }
        !services.is_empty()
    }
}

impl RestartableServer for ServerBehindKubeApiserver {
    fn kubeconfig(&self) -> &Path {
        &self.host.kubeconfig
    }

    fn restart(&mut self) {
        self.process = None;
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let log = self.dir.path().join("flotilla.log");
        self.process = Some(ServerProcess::start(BINARY, &arguments, &log).0);
    }
}

/// The blocking clients have no runtime of their own.
async fn run_blocking(
    mut server: ServerBehindKubeApiserver,
    run: impl FnOnce(&mut ServerBehindKubeApiserver) + Send + 'static,
) -> ServerBehindKubeApiserver {
    let ran = tokio::task::spawn_blocking(move || {
        run(&mut server);
        server
    });
    let server = ran.await.unwrap();
    server.wait_until_routed().await;
    server
}

// proves: FLV-clients
#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_work_behind_a_kube_apiserver_over_restarts() {
    let Some(server) = ServerBehindKubeApiserver::start().await else {
        return;
    };
    let mut server = run_blocking(server, |server| {
        let dir = server.dir.path().to_owned();
        kubectl::run_policy_commands(server, &dir);
    })
    .await;
    let names = kube_rs::run::<kube_rs::UntypedPropagationPolicy>(&mut server).await;
    assert_eq!(names, ["a", "after", "applied"]);
    server.wait_until_routed().await;
    let server = run_blocking(server, |server| client_go::run_policies(server)).await;
    let server = run_blocking(server, |server| python::run_client_on_policies(server)).await;
    let server = run_blocking(server, |server| python::run_operator_of_policies(server)).await;
    run_in_fleet_view(server).await;
}

/// Runs clients as a user with the roles that the fleet view needs.
async fn run_in_fleet_view(server: ServerBehindKubeApiserver) {
    install_agent_roles(&server.client).await;
    let members = FleetMembers::join(&server.client, server.kubeconfig()).await;
    let view = json!({"apiGroups": ["search.karmada.io"], "resources": ["proxying/proxy"],
        "resourceNames": ["fleet"], "verbs": ["*"]});
    grant_cluster_role(&server.client, "fleet-view", FLEET_USER, &view).await;
    let proxies = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"]});
    grant_cluster_role(&server.client, "fleet-proxies", FLEET_USER, &proxies).await;
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    for member in members.servers() {
        grant_cluster_role(member, "fleet-user", FLEET_USER, &everything).await;
    }
    let kubeconfig = server.host.user_kubeconfig(FLEET_USER, &[]);
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let address = &server.host.server;
    let text = text.replace(address, &format!("{address}{FLEET_PATH}"));
    std::fs::write(&kubeconfig, text).unwrap();
    members.wait_until_shown(&kubeconfig).await;
    run_blocking(server, move |server| {
        fleet::run_clients(server, &kubeconfig);
    })
    .await;
}
