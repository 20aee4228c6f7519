//! A member in pull mode behind bad networks: nothing is lost, and nothing is written twice.
//!
//! A Deployment's generation counts the writes of its spec, so a write that is repeated after
//! it had arrived shows in the member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::relay::TcpRelay;
use serde_json::{Value, json};

use crate::agent_tunnels::TunneledMember;
use crate::fleet::find_condition;
use crate::objects::{CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, policy};
use crate::pull_members::{NAME, PullFixture, ROTATE};

const NS: &str = "networks";
const DEPLOYMENT_COUNT: usize = 12;
/// The backoffs of informers and dials reach a minute when one connection in two fails.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Resets all connections of a relay again and again until it is dropped.
struct ConnectionResets(Arc<AtomicBool>);

impl ConnectionResets {
    fn every(period: Duration, relay: &Arc<TcpRelay>) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let (stop, relay) = (Arc::clone(&stopped), Arc::clone(relay));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                harness::sleep_blocking(period);
                relay.reset_connections();
            }
        });
        Self(stopped)
    }
}

impl Drop for ConnectionResets {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..DEPLOYMENT_COUNT).map(|n| format!("web-{n}"))
}

async fn create_policy(fleet: &PullFixture) {
    fleet.control.create_namespace(NS).await;
    let mut all = policy(NS, "all", &deployment(NS, "", 1), &[NAME]);
    all["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"}, {"apiVersion": "v1", "kind": "ConfigMap"}]);
    fleet.control.create(all).await;
}

/// Waits until the control plane counts this many ready replicas of each Deployment.
async fn wait_until_ready(fleet: &PullFixture, replicas: i64) {
    let ready = |d: &&Value| d["status"]["readyReplicas"] == replicas;
    let all = async {
        loop {
            let listed = fleet.control.list(&DEPLOYMENTS, NS).await;
            if listed.iter().filter(ready).count() == DEPLOYMENT_COUNT {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let waited = tokio::time::timeout(ROLLOUT_TIMEOUT, all).await;
    assert!(waited.is_ok(), "not all have {replicas} ready replicas");
}

/// Each Deployment is in the member, and was written this often.
async fn assert_written(fleet: &PullFixture, times: i64) {
    let mut found: Vec<(String, i64)> = Vec::new();
    for object in fleet.member.list(&DEPLOYMENTS, NS).await {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        found.push((name, object["metadata"]["generation"].as_i64().unwrap()));
    }
    let mut expected: Vec<(String, i64)> = names().map(|name| (name, times)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// Creates the Deployments, changes each once, and deletes a ConfigMap, whatever the network.
async fn roll_out(fleet: &PullFixture) {
    let control = &fleet.control;
    control.create(config_map(NS, "gone", "x")).await;
    fleet
        .member
        .wait_until_exists(&CONFIG_MAPS, NS, "gone")
        .await;
    for name in names() {
        control.create(deployment(NS, &name, 1)).await;
    }
    wait_until_ready(fleet, 1).await;
    assert_written(fleet, 1).await;
    for name in names() {
        let scaled = json!({"spec": {"replicas": 2}});
        control.merge_patch(&DEPLOYMENTS, NS, &name, scaled).await;
    }
    control.delete(&CONFIG_MAPS, NS, "gone").await;
    wait_until_ready(fleet, 2).await;
    assert_written(fleet, 2).await;
    fleet
        .member
        .wait_until_deleted(&CONFIG_MAPS, NS, "gone")
        .await;
}

// proves: PUL-breaking-network
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_network_that_breaks_each_second_costs_throughput_only() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    fleet.control.wait_until_cluster_ready(NAME).await;
    create_policy(&fleet).await;
    fleet.relay.set_delay(Duration::from_millis(100));
    let resets = ConnectionResets::every(Duration::from_secs(1), &fleet.relay);
    roll_out(&fleet).await;
    drop(resets);
    // The tunnel was cut with every other connection.
    TunneledMember::new(&fleet).wait_until_reached().await;
}

// proves: PUL-long-cut
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_catches_up_after_its_cluster_was_given_up() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let control = &fleet.control;
    control.wait_until_cluster_ready(NAME).await;
    create_policy(&fleet).await;
    for name in names() {
        control.create(deployment(NS, &name, 1)).await;
    }
    wait_until_ready(&fleet, 1).await;
    fleet.relay.partition();
    for name in names() {
        let scaled = json!({"spec": {"replicas": 2}});
        control.merge_patch(&DEPLOYMENTS, NS, &name, scaled).await;
    }
    // The lease of the agent expires after 40 s; the control plane waits longer than that.
    let unknown = |cluster: &Value| find_condition(cluster, "Ready")["status"] == "Unknown";
    control
        .wait_until(&CLUSTERS, "", NAME, "Unknown", unknown)
        .await;
    fleet.relay.heal();
    control.wait_until_cluster_ready(NAME).await;
    wait_until_ready(&fleet, 2).await;
    assert_written(&fleet, 2).await;
    TunneledMember::new(&fleet).wait_until_reached().await;
}

// proves: PUL-rotate-under-load
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_rotated_under_load() {
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &ROTATE).await;
    fleet.control.wait_until_cluster_ready(NAME).await;
    create_policy(&fleet).await;
    let load = async {
        for name in names() {
            fleet.control.create(deployment(NS, &name, 1)).await;
            fleet
                .member
                .wait_until_exists(&DEPLOYMENTS, NS, &name)
                .await;
        }
    };
    // Each start renews the certificate, so that the agent has begun anew twice.
    let rotations = async {
        for _ in 0..2 {
            fleet.deliver_renewed_kubeconfig(&config).await;
        }
    };
    tokio::join!(load, rotations);
    wait_until_ready(&fleet, 1).await;
    assert_written(&fleet, 1).await;
    TunneledMember::new(&fleet).wait_until_reached().await;
}
