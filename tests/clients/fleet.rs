//! Runs kubectl, client-go and kr8s in the fleet view, over restarts of Flotilla.
//!
//! Of three members one is in push mode, one in pull mode, and one is dead.

use std::path::Path;
use std::process::Command;

use client::{ListOptions, ResourcePath};
use harness::api_server_client::wait_until;
use harness::objects::{DEPLOYMENTS, SECRETS, deployment, secret};
use harness::{ApiServerClient, ServerProcess};
use serde_json::Value;

use crate::aggregated::pull_members;
use crate::aggregated::real_clusters::{join_cluster, path_string};
use crate::aggregated::simulated_member::SimulatedMember;
use crate::clients::{RestartableServer, StandaloneServer, client_go, python};

const NS: &str = "fleet-clients";
const TOOLS: [&str; 3] = ["kubectl-1.36", "client-go", "python-clients"];

/// The members that live, and the agent of the one in pull mode.
pub(crate) struct FleetMembers {
    alive: SimulatedMember,
    edge: SimulatedMember,
    _agent: ServerProcess,
}

impl FleetMembers {
    /// Joins three members, and ends one of them.
    pub(crate) async fn join(control: &ApiServerClient, kubeconfig: &Path) -> Self {
        let (alive, dead, edge) = tokio::join!(
            SimulatedMember::start("alive"),
            SimulatedMember::start("dead"),
            SimulatedMember::start("edge"),
        );
        for (name, member) in [("alive", &alive), ("dead", &dead)] {
            join_cluster(control, kubeconfig, name, &member.kubeconfig()).await;
        }
        let agent = pull_members::register(&path_string(kubeconfig), &edge).await;
        control.wait_until_cluster_ready("edge").await;
        for (member, name) in [(&alive, "a"), (&edge, "b"), (&dead, "lost")] {
            member.server.create_namespace(NS).await;
            member.server.create(secret(NS, name, "x")).await;
        }
        edge.server.create(deployment(NS, "web", 1)).await;
        Self {
            alive,
            edge,
            _agent: agent,
        }
    }

    pub(crate) fn servers(&self) -> [&ApiServerClient; 2] {
        [&self.alive.server, &self.edge.server]
    }

    /// Waits until a kubeconfig shows the objects of both members.
    pub(crate) async fn wait_until_shown(&self, kubeconfig: &Path) {
        let view = ApiServerClient::connect("fleet", kubeconfig);
        wait_until("the objects of both members", async || {
            let at = ResourcePath::collection(&SECRETS, NS);
            let list = view.api.list(at, &ListOptions::default()).await;
            list.is_ok_and(|list| list.items.len() == 2)
        })
        .await;
        let ready = |d: &Value| d["status"]["readyReplicas"] == 1;
        let edge = &self.edge.server;
        edge.wait_until(&DEPLOYMENTS, NS, "web", "ready", ready)
            .await;
    }
}

/// Runs `kubectl LINE`, which must succeed; returns its output and its warnings.
fn kubectl(kubeconfig: &Path, line: &str) -> (String, String) {
    let [program] = harness::tools(["kubectl-1.36"]).unwrap();
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["-n", NS]).args(line.split(' '));
    command.env("HOME", kubeconfig.parent().unwrap());
    let output = harness::process::run(&command);
    assert!(output.status.success(), "{line}: {output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs the clients, one after another: each restarts Flotilla.
pub(crate) fn run_clients(server: &mut dyn RestartableServer, kubeconfig: &Path) {
    let (table, warnings) = kubectl(kubeconfig, "get secrets");
    let rows = table.lines().map(|line| {
        let mut words = line.split_whitespace();
        [words.next().unwrap(), words.next().unwrap()]
    });
    let rows: Vec<[&str; 2]> = rows.collect();
    assert_eq!(rows, [["CLUSTER", "NAME"], ["alive", "a"], ["edge", "b"]]);
    assert!(warnings.contains("cluster(dead)"), "{warnings}");
    let (log, _) = kubectl(kubeconfig, "logs deploy/web");
    assert!(log.contains("second 0"), "{log}");
    let (output, _) = kubectl(kubeconfig, "exec deploy/web -- say this");
    assert_eq!(output, "say this\n");
    kubectl(kubeconfig, "label secret b@edge seen=yes");
    let (name, _) = kubectl(kubeconfig, "get secret b -o name");
    assert_eq!(name, "secret/b\n");

    client_go::run_fleet(server, kubeconfig, NS);
    python::run_kr8s_on_fleet(server, kubeconfig, NS);
}

// proves: FLV-clients
#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_the_members_of_a_standalone_server_over_restarts() {
    let Some(_) = harness::tools(TOOLS) else {
        return;
    };
    let start = tokio::task::spawn_blocking(StandaloneServer::start);
    let mut server = start.await.unwrap();
    let kubeconfig = server.kubeconfig().to_owned();
    let control = ApiServerClient::connect("control plane", &kubeconfig);
    let members = FleetMembers::join(&control, &kubeconfig).await;
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let text = text.replace("current-context: flotilla", "current-context: fleet");
    let kubeconfig = server.dir.path().join("fleet.kubeconfig");
    std::fs::write(&kubeconfig, text).unwrap();
    members.wait_until_shown(&kubeconfig).await;
    let run = move || run_clients(&mut server, &kubeconfig);
    tokio::task::spawn_blocking(run).await.unwrap();
}
