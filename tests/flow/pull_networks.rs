//! A member in pull mode behind bad networks: nothing is lost, and nothing is written twice.

use std::sync::Arc;
use std::time::Duration;

use harness::TcpRelay;
use parking_lot::Mutex;
use serde_json::Value;

use crate::flow::agent_tunnels::TunneledMember;
use crate::flow::fleet::find_condition;
use crate::flow::objects::CLUSTERS;
use crate::flow::pull_members::{NAME, PullFixture, ROTATE};
use crate::flow::rollout::Rollout;

/// Resets all connections of relays again and again until it is dropped.
pub(crate) struct ConnectionResets {
    /// Locked during a reset, so that none follows the drop.
    stopped: Arc<Mutex<bool>>,
}

impl ConnectionResets {
    pub(crate) fn every(period: Duration, relays: &[Arc<TcpRelay>]) -> Self {
        let stopped = Arc::new(Mutex::new(false));
        let (stop, relays) = (Arc::clone(&stopped), relays.to_vec());
        std::thread::spawn(move || {
            loop {
                harness::sleep_blocking(period);
                let stopped = stop.lock();
                if *stopped {
                    return;
                }
                relays.iter().for_each(|relay| relay.reset_connections());
            }
        });
        Self { stopped }
    }
}

impl Drop for ConnectionResets {
    fn drop(&mut self) {
        *self.stopped.lock() = true;
    }
}

fn rollout(fleet: &PullFixture) -> Rollout<'_> {
    Rollout {
        control: &fleet.control,
        members: vec![&fleet.member],
        namespace: "networks",
        count: 12,
    }
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
    let rollout = rollout(&fleet);
    rollout.create_policy().await;
    fleet.relay.set_delay(Duration::from_millis(100));
    let relays = [Arc::clone(&fleet.relay)];
    let resets = ConnectionResets::every(Duration::from_secs(1), &relays);
    rollout.create("web").await;
    rollout.wait_until_ready("web", 1).await;
    rollout.assert_written(&[("web", 1)]).await;
    rollout.scale("web", 2).await;
    rollout.delete().await;
    rollout.wait_until_ready("web", 2).await;
    rollout.assert_written(&[("web", 2)]).await;
    rollout.wait_until_deleted().await;
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
    let rollout = rollout(&fleet);
    rollout.create_policy().await;
    rollout.create("web").await;
    rollout.wait_until_ready("web", 1).await;
    let tunnel = |cluster: &Value| find_condition(cluster, "AgentTunnel")["status"].clone();
    control
        .wait_until(&CLUSTERS, "", NAME, "reached", |c| tunnel(c) == "True")
        .await;
    fleet.relay.partition();
    rollout.scale("web", 2).await;
    // The lease of the agent expires after 40 s; the control plane waits longer than that.
    let unknown = |cluster: &Value| find_condition(cluster, "Ready")["status"] == "Unknown";
    let cluster = control
        .wait_until(&CLUSTERS, "", NAME, "Unknown", unknown)
        .await;
    assert_eq!(tunnel(&cluster), "Unknown");
    fleet.relay.heal();
    control.wait_until_cluster_ready(NAME).await;
    control
        .wait_until(&CLUSTERS, "", NAME, "reached", |c| tunnel(c) == "True")
        .await;
    rollout.wait_until_ready("web", 2).await;
    rollout.assert_written(&[("web", 2)]).await;
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
    let rollout = rollout(&fleet);
    rollout.create_policy().await;
    // Each start renews the certificate, so that the agent has begun anew twice.
    let rotations = async {
        for _ in 0..2 {
            fleet.deliver_renewed_kubeconfig(&config).await;
        }
    };
    tokio::join!(rollout.create_in_turn("web"), rotations);
    rollout.wait_until_ready("web", 1).await;
    rollout.assert_written(&[("web", 1)]).await;
    TunneledMember::new(&fleet).wait_until_reached().await;
}
