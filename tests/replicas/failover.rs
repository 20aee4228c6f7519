//! Failover: the leader is killed, or suspended, in the middle of a rollout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{ResourcePath, WatchOptions};
use futures_util::StreamExt;
use harness::ApiServerClient;
use harness::etcd::VERSION_3_5;
use harness::objects::{BINDINGS, DEPLOYMENTS, WORKS, deployment};

use crate::replicas::flotilla_process::{FAST_ELECTION_FLAGS, FlotillaProcess, exclusive_lock};
use crate::replicas::replica_pair::{ControlPlaneMode, ReplicaPair};
use crate::replicas::rollout::{policy_for_all_deployments, wait_until_rolled_out};

const NS: &str = "failover";
/// Deployments of a rollout.
const DEPLOYMENT_COUNT: usize = 300;
/// How long writes of the killed leader may still reach watchers.
const IN_FLIGHT_WRITES_PAUSE: Duration = Duration::from_millis(300);

/// Creates the Deployments `from..to` and returns their names.
async fn create_deployments(
    control: Arc<ApiServerClient>,
    from: usize,
    to: usize,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for n in from..to {
        let name = format!("d{n:03}");
        control.create(deployment(NS, &name, 1)).await;
        names.insert(name);
    }
    names
}

/// Two replicas, one of them the leader, two members, and a policy that propagates all
/// Deployments to both.
struct ReplicaFailoverFixture {
    pair: ReplicaPair,
    _nodes: Vec<FlotillaProcess>,
    members: Vec<ApiServerClient>,
    leader: usize,
    /// The replica that does not lead.
    other: Arc<ApiServerClient>,
}

impl ReplicaFailoverFixture {
    async fn start(form: ControlPlaneMode, flags: &[&str]) -> Option<Self> {
        let pair = ReplicaPair::start(form, VERSION_3_5, flags).await?;
        let (nodes, members) = pair.join_members(2).await;
        let control = pair.control(0);
        control.create_namespace(NS).await;
        control
            .create(policy_for_all_deployments(NS, &["member1", "member2"]))
            .await;
        let leader = pair.leader_index(&control).await;
        let other = Arc::new(pair.control(1 - leader));
        Some(Self {
            pair,
            _nodes: nodes,
            members,
            leader,
            other,
        })
    }
}

/// Waits until a Work is written again. How long a failover takes depends on the machine, and is a
/// figure of the benchmark.
async fn wait_until_controllers_resume(control: &ApiServerClient) {
    tokio::time::sleep(IN_FLIGHT_WRITES_PAUSE).await;
    let options = WatchOptions {
        resource_version: works_revision(control).await,
        ..WatchOptions::default()
    };
    let at = ResourcePath::collection(&WORKS, "");
    loop {
        // The host may still route a watch to the killed replica.
        let Ok(mut works) = control.api.watch(at, &options).await else {
            continue;
        };
        if let Some(Ok(_)) = works.next().await {
            return;
        }
    }
}

async fn works_revision(control: &ApiServerClient) -> String {
    let options = client::ListOptions {
        limit: 1,
        ..client::ListOptions::default()
    };
    loop {
        let list = control
            .api
            .list(ResourcePath::collection(&WORKS, ""), &options)
            .await;
        if let Ok(list) = list {
            return list.revision.to_string();
        }
    }
}

async fn check_killed_leader(form: ControlPlaneMode, flags: &[&str]) {
    let _alone = exclusive_lock().await;
    let Some(fixture) = ReplicaFailoverFixture::start(form, flags).await else {
        return;
    };
    let (mut pair, leader, other) = (fixture.pair, fixture.leader, fixture.other);
    let members = fixture.members;
    let mut expected = create_deployments(Arc::clone(&other), 0, DEPLOYMENT_COUNT / 2).await;
    let rest = tokio::spawn(create_deployments(
        Arc::clone(&other),
        DEPLOYMENT_COUNT / 2,
        DEPLOYMENT_COUNT,
    ));
    pair.replicas[leader].kill();
    wait_until_controllers_resume(&other).await;
    expected.extend(rest.await.unwrap());
    wait_until_rolled_out(&other, &members, NS, &expected).await;
}

#[tokio::test]
async fn a_killed_leader_is_replaced_with_a_short_lease() {
    check_killed_leader(ControlPlaneMode::Standalone, &FAST_ELECTION_FLAGS).await;
}

#[harness::slow]
#[tokio::test]
async fn a_killed_leader_is_replaced_by_default() {
    check_killed_leader(ControlPlaneMode::Standalone, &[]).await;
}

#[harness::slow]
#[tokio::test]
async fn a_killed_aggregated_leader_is_replaced_with_a_short_lease() {
    check_killed_leader(ControlPlaneMode::Aggregated, &FAST_ELECTION_FLAGS).await;
}

#[harness::slow]
#[tokio::test]
async fn a_killed_aggregated_leader_is_replaced_by_default() {
    check_killed_leader(ControlPlaneMode::Aggregated, &[]).await;
}

#[harness::slow]
#[tokio::test]
async fn a_suspended_leader_writes_nothing_after_it_lost_the_lease() {
    check_suspended_leader(Duration::from_secs(8)).await;
}

/// The leader is suspended for longer than any request waits for its response.
#[harness::slow]
#[tokio::test]
async fn a_leader_suspended_for_a_minute_writes_nothing_after_it_lost_the_lease() {
    check_suspended_leader(Duration::from_secs(60)).await;
}

/// The leader is suspended in the middle of a rollout for at least `time`. Meanwhile the other
/// replica acquires the lease, which is short, and finishes the rollout. A call that
/// the suspended leader had begun may reach the store late; the new leader corrects its effect.
async fn check_suspended_leader(time: Duration) {
    let _alone = exclusive_lock().await;
    let Some(fixture) =
        ReplicaFailoverFixture::start(ControlPlaneMode::Standalone, &FAST_ELECTION_FLAGS).await
    else {
        return;
    };
    let (pair, leader, other) = (fixture.pair, fixture.leader, fixture.other);
    let members = fixture.members;
    let mut expected = BTreeSet::new();
    // Created concurrently, so that the leader is busy when it is suspended.
    let batches = (0..240).step_by(20);
    let batches = batches.map(|n| tokio::spawn(create_deployments(Arc::clone(&other), n, n + 20)));
    let batches: Vec<_> = batches.collect();
    while other.list(&BINDINGS, NS).await.len() < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pair.replicas[leader].signal("-STOP");
    let suspended = Instant::now();
    for batch in batches {
        expected.extend(batch.await.unwrap());
    }
    wait_until_rolled_out(&other, &members, NS, &expected).await;
    // The suspended leader may be about to create these: they must not come back.
    for n in (0..240).filter(|n| n % 3 > 0) {
        let name = format!("d{n:03}");
        other.delete(&DEPLOYMENTS, NS, &name).await;
        expected.remove(&name);
    }
    let mut before = wait_until_rolled_out(&other, &members, NS, &expected).await;
    tokio::time::sleep(time.saturating_sub(suspended.elapsed())).await;
    pair.replicas[leader].signal("-CONT");
    let end = Instant::now() + Duration::from_secs(90);
    while !pair.replicas[leader]
        .log_text()
        .contains("no longer leading")
    {
        assert!(
            Instant::now() < end,
            "the suspended replica does not notice that it lost the lease"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Any late write of the suspended replica happens before this rollout is complete.
    expected.extend(create_deployments(Arc::clone(&other), 240, 250).await);
    let after = wait_until_rolled_out(&other, &members, NS, &expected).await;
    before.retain(|key, object| after.get(key) != Some(object));
    assert!(
        before.is_empty(),
        "written by the suspended replica: {before:?}"
    );
    // The resumed replica serves the other replica's writes.
    let resumed = pair.control(leader);
    wait_until_rolled_out(&resumed, &members, NS, &expected).await;
}
