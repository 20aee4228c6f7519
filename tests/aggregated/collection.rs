//! What the kube-controller-manager beside the host takes away, and what it must
//! not.

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

/// The garbage collector reads owners while nobody can be asked about them, and
/// deletes nothing.
async fn outage(behind: &mut Behind, members: &Members) {
    let before = behind
        .control
        .until_there(&BINDINGS, NS, "web-deployment")
        .await;
    behind.kill();
    // A collector that starts has to find out everything anew.
    let manager = behind.host.manager.as_mut().unwrap();
    manager.kill();
    manager.again();
    // What depends on an owner in a group that cannot be asked: a ConfigMap of a
    // binding.
    let mut dependent = config_map(NS, "dependent", "1");
    dependent["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "name": "web-deployment", "uid": before["metadata"]["uid"],
    }]);
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
