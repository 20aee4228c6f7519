//! A leader that dies, or sleeps, in the middle of a rollout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{At, WatchOptions};
use futures_util::StreamExt;
use harness::Server;
use harness::etcd::NEW;
use harness::objects::{BINDINGS, DEPLOYMENTS, WORKS, deployment};

use crate::pair::{Form, Pair};
use crate::processes::{FAST, Node, alone};
use crate::rollout::{everything, until_exact};

const NS: &str = "failover";
/// Deployments of a rollout.
const COUNT: usize = 300;
/// Until the controllers go on, with the short lease and with the usual one.
const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(20);
/// Writes of the dead that are still on their way to us.
const ECHO: Duration = Duration::from_millis(300);

/// Creates Deployments `from..to`; their names.
async fn roll_out(control: Arc<Server>, from: usize, to: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for n in from..to {
        let name = format!("d{n:03}");
        control.create(deployment(NS, &name, 1)).await;
        names.insert(name);
    }
    names
}

/// Two replicas of which one leads, two members, and a policy that wants everything
/// in both.
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

/// How long until somebody writes works again.
async fn until_resumed(control: &Server, since: Instant) -> Duration {
    tokio::time::sleep(ECHO.saturating_sub(since.elapsed())).await;
    let options = WatchOptions {
        resource_version: revision(control).await,
        ..WatchOptions::default()
    };
    let at = At::all(&WORKS, "");
    loop {
        // Through the host a watch may still be led to the dead.
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
    let Some(scene) = Scene::set(form, flags).await else {
        return;
    };
    let (mut pair, leader, other) = (scene.pair, scene.leader, scene.other);
    let members = scene.members;
    let mut wanted = roll_out(Arc::clone(&other), 0, COUNT / 2).await;
    let rest = tokio::spawn(roll_out(Arc::clone(&other), COUNT / 2, COUNT));
    pair.nodes[leader].kill();
    let since = Instant::now();
    let resumed = until_resumed(&other, since).await;
    assert!(resumed < limit, "resumed after {resumed:?}");
    wanted.extend(rest.await.unwrap());
    until_exact(&other, &members, NS, &wanted).await;
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
async fn a_killed_leader_behind_a_host_is_replaced_as_fast() {
    killed(Form::Behind, &FAST, SHORT).await;
}

#[harness::slow]
#[tokio::test]
async fn a_killed_leader_behind_a_host_is_replaced_as_fast_by_default() {
    killed(Form::Behind, &[], LONG).await;
}

#[tokio::test]
async fn a_leader_that_slept_writes_nothing_late() {
    slept(Duration::from_secs(8)).await;
}

/// Longer than any request waits for its answer.
#[harness::slow]
#[tokio::test]
async fn a_leader_that_slept_for_long_writes_nothing_late() {
    slept(Duration::from_secs(60)).await;
}

/// The leader is stopped in the middle of a rollout, for at least `time`; meanwhile the
/// other replica takes the lease, which lasts three seconds, and finishes. A call that the
/// sleeper had begun may reach the store late; the new leader puts right what it made.
async fn slept(time: Duration) {
    let _alone = alone().await;
    let Some(scene) = Scene::set(Form::Alone, &FAST).await else {
        return;
    };
    let (pair, leader, other) = (scene.pair, scene.leader, scene.other);
    let members = scene.members;
    let mut wanted = BTreeSet::new();
    // All at once, so that the leader has much to do when it is stopped.
    let parts = (0..240).step_by(20);
    let parts = parts.map(|n| tokio::spawn(roll_out(Arc::clone(&other), n, n + 20)));
    let parts: Vec<_> = parts.collect();
    while other.list(&BINDINGS, NS).await.len() < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pair.nodes[leader].signal("-STOP");
    let slept = Instant::now();
    for part in parts {
        wanted.extend(part.await.unwrap());
    }
    until_exact(&other, &members, NS, &wanted).await;
    // What the sleeper may be about to make must not come back.
    for n in (0..240).filter(|n| n % 3 > 0) {
        let name = format!("d{n:03}");
        other.delete(&DEPLOYMENTS, NS, &name).await;
        wanted.remove(&name);
    }
    let mut before = until_exact(&other, &members, NS, &wanted).await;
    tokio::time::sleep(time.saturating_sub(slept.elapsed())).await;
    pair.nodes[leader].signal("-CONT");
    let end = Instant::now() + Duration::from_secs(30);
    while !pair.nodes[leader].said().contains("no longer leading") {
        assert!(Instant::now() < end, "it still believes that it leads");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Whatever it did late was done before this has gone all the way.
    wanted.extend(roll_out(Arc::clone(&other), 240, 250).await);
    let after = until_exact(&other, &members, NS, &wanted).await;
    before.retain(|place, object| after.get(place) != Some(object));
    assert!(before.is_empty(), "written by the sleeper: {before:?}");
    // It serves all the while, and what the other wrote.
    let awake = pair.control(leader);
    until_exact(&awake, &members, NS, &wanted).await;
}
