//! The host's kube-controller-manager and objects that Flotilla serves: garbage collection by
//! owner references, and the deletion of namespaces.
//!
//! While Flotilla does not respond, the garbage collector must not delete the dependents of
//! objects that Flotilla serves.

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
/// How long the garbage collector may take to look up the owners of an object.
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

/// Makes the garbage collector look up a binding, and returns whether it received a response
/// with this code.
///
/// The collector looks up the owners of an object with two owners when one of them is
/// deleted. `n` makes the names of these objects unique.
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
    let response_count = || behind.audited().iter().filter(|e| of_collector(e)).count();
    let before = response_count();
    control.delete(&CONFIG_MAPS, NS, &first).await;
    let end = Instant::now() + PATIENCE;
    while response_count() == before {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}

/// Kills Flotilla and waits until the garbage collector has received a 503 for a binding.
async fn refused_answers(behind: &mut Behind, binding: &Value) {
    let mut n = 0;
    // The collector discovers new resources every 30 seconds.
    while !collector_asks(behind, n, binding, 200).await {
        n += 1;
        assert!(n < 10, "the collector never looks up the binding");
    }
    // It drops resources at the same rate when discovery fails. Then it looks up nothing, and
    // the outage is repeated.
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
    panic!("the collector does not look up the binding while Flotilla is down");
}

fn reference(binding: &Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "name": binding["metadata"]["name"], "uid": binding["metadata"]["uid"],
    })
}

/// The garbage collector reads owners while Flotilla is down, and deletes nothing.
async fn outage(behind: &mut Behind, members: &Members) {
    let before = behind
        .control
        .until_there(&BINDINGS, NS, "web-deployment")
        .await;
    refused_answers(behind, &before).await;
    // A collector that starts has an empty graph and no cached discovery.
    let manager = behind.host.manager.as_mut().unwrap();
    manager.kill();
    manager.again();
    // A dependent whose owner is in an unavailable group: a ConfigMap owned by a binding.
    let mut dependent = config_map(NS, "dependent", "1");
    dependent["metadata"]["ownerReferences"] = json!([reference(&before)]);
    behind.control.create(dependent).await;
    // The collector goes on with owners in available groups.
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
    // The binding can be looked up now, so the collector removes the reference to the deleted
    // owner.
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

/// The deletion of a template deletes its binding, the Works, the objects in the members, and
/// the dependents of the binding.
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

/// The deletion of a namespace also deletes the objects in it that Flotilla serves.
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
