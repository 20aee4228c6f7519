//! What the kube-controller-manager beside the host takes away, and what it must
//! not.

use std::time::{Duration, Instant};

use client::At;
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, POLICIES, WORKS, config_map, deployment,
    policy, works_of,
};
use harness::server::until;
use serde_json::{Value, json};

use crate::behind::Behind;
use crate::world::{Members, NAMES};

const NS: &str = "collection";
/// Until the collector asks about an object whose owner went.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn story(behind: &mut Behind, members: &Members) {
    behind.control.namespace(NS).await;
    let template = deployment(NS, "web", 2);
    behind
        .control
        .create(policy(NS, "web", &template, &NAMES))
        .await;
    behind.control.create(template).await;
    for member in &members.all {
        member.server.until_there(&DEPLOYMENTS, NS, "web").await;
    }
    outage(behind, members).await;
    owner(behind, members).await;
    namespace(behind, members).await;
}

/// Whether the collector asked for a binding and got an answer of this code. It does so
/// for an object with two owners when the other owner goes; `n` names these.
async fn collector_asks(behind: &Behind, n: usize, binding: &Value, code: u16) -> bool {
    let control = &behind.control;
    let (first, second) = (format!("first-{n}"), format!("second-{n}"));
    let owner = control.create(config_map(NS, &first, "1")).await;
    let mut owned = config_map(NS, &second, "1");
    owned["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": first, "uid": owner["metadata"]["uid"]},
        reference(binding),
    ]);
    control.create(owned).await;
    let of_collector = |event: &Value| {
        let agent = event["userAgent"].as_str().unwrap_or_default();
        agent.contains("garbage-collector")
            && event["objectRef"]["name"] == binding["metadata"]["name"]
            && event["responseStatus"]["code"] == code
    };
    let answers = || behind.audited().iter().filter(|e| of_collector(e)).count();
    let before = answers();
    control.delete(&CONFIG_MAPS, NS, &first).await;
    let end = Instant::now() + PATIENCE;
    while answers() == before {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}

/// Leaves Flotilla killed, after the collector has asked for a binding in vain.
async fn refused_answers(behind: &mut Behind, binding: &Value) {
    let mut n = 0;
    // It learns of new kinds every half minute.
    while !collector_asks(behind, n, binding, 200).await {
        n += 1;
        assert!(n < 10, "the collector never asks");
    }
    // It forgets them as often: then it has nothing to ask, and the outage comes again.
    for _ in 0..4 {
        n += 1;
        behind.kill();
        if collector_asks(behind, n, binding, 503).await {
            let kept = format!("second-{n}");
            behind.control.until_there(&CONFIG_MAPS, NS, &kept).await;
            return;
        }
        behind.run();
        behind.until_available().await;
    }
    panic!("the collector does not ask while nobody answers");
}

fn reference(binding: &Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "name": binding["metadata"]["name"], "uid": binding["metadata"]["uid"],
    })
}

/// The garbage collector reads owners while nobody can be asked about them, and
/// deletes nothing.
async fn outage(behind: &mut Behind, members: &Members) {
    let before = behind
        .control
        .until_there(&BINDINGS, NS, "web-deployment")
        .await;
    refused_answers(behind, &before).await;
    // A collector that starts has to find out everything anew.
    let manager = behind.host.manager.as_mut().unwrap();
    manager.kill();
    manager.again();
    // What depends on an owner in a group that cannot be asked: a ConfigMap of a
    // binding.
    let mut dependent = config_map(NS, "dependent", "1");
    dependent["metadata"]["ownerReferences"] = json!([reference(&before)]);
    behind.control.create(dependent).await;
    // The collector works on what it can ask about.
    let owner = behind.control.create(config_map(NS, "owner", "1")).await;
    let mut owned = config_map(NS, "owned", "1");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    }]);
    behind.control.create(owned).await;
    behind.run();
    until("the binding can be read again", async || {
        let at = At::one(&BINDINGS, NS, "web-deployment");
        behind.control.api.get(at).await.is_ok()
    })
    .await;
    behind.control.delete(&CONFIG_MAPS, NS, "owner").await;
    behind.control.until_gone(&CONFIG_MAPS, NS, "owned").await;
    let after = behind
        .control
        .until_there(&BINDINGS, NS, "web-deployment")
        .await;
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    behind
        .control
        .until_there(&CONFIG_MAPS, NS, "dependent")
        .await;
    // Now it has an answer, and drops the owner that is gone.
    until("the objects with two owners have one", async || {
        let all = behind.control.list(&CONFIG_MAPS, NS).await;
        let mut kept = all.iter().filter(|o| {
            let name = o["metadata"]["name"].as_str().unwrap();
            name.starts_with("second-")
        });
        let one = |o: &Value| {
            o["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|r| r.len() == 1)
        };
        kept.clone().count() > 0 && kept.all(one)
    })
    .await;
    for member in &members.all {
        member.server.until_there(&DEPLOYMENTS, NS, "web").await;
    }
}

/// A template that goes takes its binding, works and copies along, and what hangs
/// on the binding.
async fn owner(behind: &Behind, members: &Members) {
    behind.control.delete(&DEPLOYMENTS, NS, "web").await;
    behind
        .control
        .until_gone(&BINDINGS, NS, "web-deployment")
        .await;
    behind
        .control
        .until_gone(&CONFIG_MAPS, NS, "dependent")
        .await;
    for member in &members.all {
        member.server.until_gone(&DEPLOYMENTS, NS, "web").await;
        no_works(behind, member.name, "web-").await;
    }
}

async fn no_works(behind: &Behind, cluster: &str, prefix: &str) {
    let works = works_of(cluster);
    until("its works are gone", async || {
        let all = behind.control.list(&WORKS, &works).await;
        let of = |w: &Value| {
            let name = w["metadata"]["name"].as_str();
            name.is_some_and(|n| n.starts_with(prefix))
        };
        !all.iter().any(of)
    })
    .await;
}

/// A namespace is emptied of what Flotilla serves, too.
async fn namespace(behind: &Behind, members: &Members) {
    let template = config_map(NS, "last", "1");
    behind
        .control
        .create(policy(NS, "last", &template, &NAMES))
        .await;
    behind.control.create(template).await;
    for member in &members.all {
        member.server.until_there(&CONFIG_MAPS, NS, "last").await;
    }
    behind.control.delete(&NAMESPACES, "", NS).await;
    behind.control.until_gone(&NAMESPACES, "", NS).await;
    assert_eq!(behind.control.list(&POLICIES, NS).await, [] as [Value; 0]);
    assert_eq!(behind.control.list(&BINDINGS, NS).await, [] as [Value; 0]);
    for member in &members.all {
        member.server.until_gone(&NAMESPACES, "", NS).await;
    }
}
