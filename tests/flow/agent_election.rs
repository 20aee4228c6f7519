//! Several agents of one member in pull mode: the elected one works, and another takes over.

use std::path::Path;

use harness::Daemon;
use serde_json::{Value, json};

use crate::flow::agent_tunnels::TunneledMember;
use crate::flow::objects::{DEPLOYMENTS, LEASES};
use crate::flow::pull_members::{NAME, PullFixture};
use crate::flow::rollout::Rollout;

const ELECTION: [&str; 5] = [
    "--leader-elect",
    "--leader-elect-resource-namespace=karmada-cluster",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=500ms",
];

fn start(fleet: &PullFixture, config: &Path, log: &str) -> Daemon {
    let line = fleet.agent_line(config, &ELECTION);
    let log = fleet.up.dir().join(log);
    Daemon::start(Path::new(&line[0]), line[1..].to_vec(), &log)
}

/// Waits until the lease has another holder than this, or none if that is demanded.
async fn wait_for_holder(fleet: &PullFixture, former: &str, is_held: bool) -> String {
    let holder = |lease: &Value| {
        let holder = lease["spec"]["holderIdentity"].as_str();
        holder.unwrap_or_default().to_owned()
    };
    let other = |lease: &Value| holder(lease) != former && holder(lease).is_empty() != is_held;
    let name = format!("karmada-agent-{NAME}");
    let lease = fleet
        .control
        .wait_until(&LEASES, "karmada-cluster", &name, "another holder", other)
        .await;
    holder(&lease)
}

// proves: PUL-election, PUL-replicas
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_takes_over_when_the_leader_dies() {
    let fleet = PullFixture::start().await;
    fleet
        .register_with(&["--karmada-agent-replicas", "2"])
        .await;
    let agent = fleet
        .member
        .wait_until_exists(&DEPLOYMENTS, "karmada-system", "karmada-agent")
        .await;
    assert_eq!(agent["spec"]["replicas"], 2);
    let command = &agent["spec"]["template"]["spec"]["containers"][0];
    for flag in [
        "--leader-elect",
        "--leader-elect-resource-namespace=karmada-cluster",
    ] {
        assert!(
            command.to_string().contains(&format!("{flag:?}")),
            "{command}"
        );
    }

    let config = fleet.agent_kubeconfig().await;
    let mut first = start(&fleet, &config, "first.log");
    let holder = wait_for_holder(&fleet, "", true).await;
    let mut second = start(&fleet, &config, "second.log");
    fleet.control.wait_until_cluster_ready(NAME).await;
    let rollout = Rollout {
        control: &fleet.control,
        members: vec![&fleet.member],
        namespace: "election",
        count: 3,
    };
    rollout.create_policy().await;
    rollout.create("web").await;
    rollout.wait_until_ready("web", 1).await;
    let tunneled = TunneledMember::new(&fleet);
    tunneled.wait_until_reached().await;
    let opened = async || {
        let metrics = fleet.control.api.get_raw("/metrics").await.unwrap();
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        let name = "flotilla_agent_tunnels_opened_total{";
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit_once(' '))
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!(opened().await, "1", "the agent that waits opens no tunnel");

    first.kill();
    rollout.scale("web", 2).await;
    rollout.create("late").await;
    rollout.delete().await;
    let holder = wait_for_holder(&fleet, &holder, true).await;
    rollout.wait_until_ready("web", 2).await;
    rollout.wait_until_ready("late", 1).await;
    rollout.wait_until_deleted().await;
    rollout.assert_written(&[("web", 2), ("late", 1)]).await;
    tunneled.wait_until_reached().await;
    // A leader that is stopped releases the lease.
    second.stop();
    wait_for_holder(&fleet, &holder, false).await;
    first.restart();
    wait_for_holder(&fleet, "", true).await;
    let scaled = json!({"spec": {"replicas": 3}});
    let control = &fleet.control;
    control
        .merge_patch(&DEPLOYMENTS, "election", "web-0", scaled)
        .await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 3;
    control
        .wait_until(&DEPLOYMENTS, "election", "web-0", "ready", ready)
        .await;
}
