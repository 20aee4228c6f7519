//! Failover: the leader is killed, or suspended, in the middle of a rollout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{At, WatchOptions};
use futures_util::StreamExt;
use harness::Server;
use harness::etcd::NEW;
use harness::objects::{DEPLOYMENTS, WORKS, deployment};

use crate::pair::{Form, Pair};
use crate::processes::{FAST, Node, alone};
use crate::rollout::{everything, until_exact};

const NS: &str = "failover";
/// Deployments of a rollout.
const COUNT: usize = 300;
/// How long a failover may take: with the short lease of the tests, and with the default one.
const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(20);
/// How long writes of the killed leader may still reach watchers.
const ECHO: Duration = Duration::from_millis(300);

/// Creates the Deployments `from..to` and returns their names.
async fn roll_out(control: Arc<Server>, from: usize, to: usize) -> BTreeSet<String> {
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
struct Scene {
    pair: Pair,
    _nodes: Vec<Node>,
    members: Vec<Server>,
    leader: usize,
    /// The replica that does not lead.
    other: Arc<Server>,
}

impl Scene {
    async fn set(form: Form, flags: &[&str]) -> Option<Self> {
        let pair = Pair::start(form, NEW, flags).await?;
        let (nodes, members) = pair.members(2).await;
        let control = pair.control(0);
        control.namespace(NS).await;
        control
            .create(everything(NS, &["member1", "member2"]))
            .await;
        let leader = pair.leader(&control).await;
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

/// Waits until a Work is written again; returns the time since `since`.
async fn until_resumed(control: &Server, since: Instant) -> Duration {
    tokio::time::sleep(ECHO.saturating_sub(since.elapsed())).await;
    let options = WatchOptions {
        resource_version: revision(control).await,
        ..WatchOptions::default()
    };
    let at = At::all(&WORKS, "");
    loop {
        // The host may still route a watch to the killed replica.
        let Ok(mut works) = control.api.watch(at, &options).await else {
            continue;
        };
        if let Some(Ok(_)) = works.next().await {
            return since.elapsed();
        }
    }
}

async fn revision(control: &Server) -> String {
    let options = client::ListOptions {
        limit: 1,
        ..client::ListOptions::default()
    };
    loop {
        let list = control.api.list(At::all(&WORKS, ""), &options).await;
        if let Ok(list) = list {
            return list.revision.to_string();
        }
    }
}

async fn killed(form: Form, flags: &[&str], limit: Duration) {
    let _alone = alone().await;
    let Some(fixture) = Scene::set(form, flags).await else {
        return;
    };
    let (mut pair, leader, other) = (fixture.pair, fixture.leader, fixture.other);
    let members = fixture.members;
    let mut expected = roll_out(Arc::clone(&other), 0, COUNT / 2).await;
    let rest = tokio::spawn(roll_out(Arc::clone(&other), COUNT / 2, COUNT));
    pair.nodes[leader].kill();
    let since = Instant::now();
    let resumed = until_resumed(&other, since).await;
    assert!(resumed < limit, "resumed after {resumed:?}");
    expected.extend(rest.await.unwrap());
    until_exact(&other, &members, NS, &expected).await;
}

#[tokio::test]
async fn a_killed_leader_is_replaced_within_four_seconds_with_a_short_lease() {
    killed(Form::Alone, &FAST, SHORT).await;
}

#[harness::slow]
#[tokio::test]
async fn a_killed_leader_is_replaced_within_twenty_seconds_by_default() {
    killed(Form::Alone, &[], LONG).await;
}

#[tokio::test]
async fn a_killed_aggregated_leader_is_replaced_within_four_seconds_with_a_short_lease() {
    killed(Form::Behind, &FAST, SHORT).await;
}

#[harness::slow]
#[tokio::test]
async fn a_killed_aggregated_leader_is_replaced_within_twenty_seconds_by_default() {
    killed(Form::Behind, &[], LONG).await;
}

#[tokio::test]
async fn a_suspended_leader_writes_nothing_after_it_lost_the_lease() {
    slept(Duration::from_secs(8)).await;
}

/// The leader is suspended for longer than any request waits for its response.
#[harness::slow]
#[tokio::test]
async fn a_leader_suspended_for_a_minute_writes_nothing_after_it_lost_the_lease() {
    slept(Duration::from_secs(60)).await;
}

/// The leader is suspended in the middle of a rollout for at least `time`. Meanwhile the other
/// replica acquires the lease, whose duration is 3 seconds, and finishes the rollout.
async fn slept(time: Duration) {
    let _alone = alone().await;
    let Some(fixture) = Scene::set(Form::Alone, &FAST).await else {
        return;
    };
    let (pair, leader, other) = (fixture.pair, fixture.leader, fixture.other);
    let members = fixture.members;
    let mut expected = roll_out(Arc::clone(&other), 0, 60).await;
    pair.nodes[leader].signal("-STOP");
    let suspended = Instant::now();
    expected.extend(roll_out(Arc::clone(&other), 60, 90).await);
    until_exact(&other, &members, NS, &expected).await;
    // The suspended leader may be about to create these: they must not come back.
    for n in (0..90).step_by(3) {
        let name = format!("d{n:03}");
        other.delete(&DEPLOYMENTS, NS, &name).await;
        expected.remove(&name);
    }
    let mut before = until_exact(&other, &members, NS, &expected).await;
    tokio::time::sleep(time.saturating_sub(suspended.elapsed())).await;
    pair.nodes[leader].signal("-CONT");
    let end = Instant::now() + Duration::from_secs(30);
    while !pair.nodes[leader].said().contains("no longer leading") {
        assert!(
            Instant::now() < end,
            "the suspended replica does not notice that it lost the lease"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Any late write of the suspended replica happens before this rollout is complete.
    expected.extend(roll_out(Arc::clone(&other), 90, 100).await);
    let after = until_exact(&other, &members, NS, &expected).await;
    before.retain(|key, object| after.get(key) != Some(object));
    assert!(
        before.is_empty(),
        "written by the suspended replica: {before:?}"
    );
    // The resumed replica serves the other replica's writes.
    let resumed = pair.control(leader);
    until_exact(&resumed, &members, NS, &expected).await;
}
