//! Workloads of a host that has nodes: Flotilla does not propagate them, because the host runs
//! them itself, unless `--host-workloads=propagate` is set.

use client::{At, WriteOptions};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, config_map, deployment, policy,
};
use harness::server::{condition, until};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::behind::Behind;
use crate::world::{Members, NAMES};

const NS: &str = "workloads";
const PROPAGATE: &str = "--host-workloads=propagate";

static NODES: Gvr = Gvr::constant("", "v1", "nodes");
static EVENTS: Gvr = Gvr::constant("", "v1", "events");

pub(crate) async fn story(host: &mut Behind, members: &Members) {
    host.control.namespace(NS).await;
    let early = deployment(NS, "early", 1);
    host.control
        .create(policy(NS, "early", &early, &NAMES))
        .await;
    host.control.create(early).await;
    for member in &members.all {
        member.server.until_there(&DEPLOYMENTS, NS, "early").await;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "host-node"}});
    let (nodes, options) = (At::all(&NODES, ""), WriteOptions::default());
    let created = host.control.api.create(nodes, node, &options).await;
    created.unwrap();
    refuse(host, members).await;
    host.kill();
    host.run_with(&[PROPAGATE]);
    host.until_available().await;
    propagate(host, members).await;
    host.control.delete(&NODES, "", "host-node").await;
    host.kill();
    host.run();
    host.until_available().await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 2;
    let admin = &host.control;
    admin
        .until(
            &DEPLOYMENTS,
            NS,
            "late",
            "aggregated from its members again",
            ready,
        )
        .await;
    admin.delete(&NAMESPACES, "", NS).await;
    admin.until_gone(&NAMESPACES, "", NS).await;
}

async fn refuse(host: &Behind, members: &Members) {
    let admin = &host.control;
    let is_rejected = |b: &Value| condition(b, "Scheduled")["reason"] == "HostRunsWorkloads";
    // The binding keeps its clusters, and the objects in the members stay.
    let binding = admin
        .until(&BINDINGS, NS, "early-deployment", "refused", is_rejected)
        .await;
    assert_eq!(
        binding["spec"]["clusters"].as_array().map(Vec::len),
        Some(2)
    );

    let late = deployment(NS, "late", 1);
    admin.create(policy(NS, "late", &late, &NAMES)).await;
    admin.create(late).await;
    let binding = admin
        .until(&BINDINGS, NS, "late-deployment", "refused", is_rejected)
        .await;
    assert_eq!(binding["spec"].get("clusters"), None);
    until("an event names the flag", async || {
        let all = admin.list(&EVENTS, NS).await;
        all.iter().any(|e| {
            e["involvedObject"]["name"] == "late"
                && e["reason"] == "ApplyPolicyFailed"
                && e["message"].as_str().is_some_and(|m| m.contains(PROPAGATE))
        })
    })
    .await;
    // Objects that are not workloads are propagated.
    let map = config_map(NS, "map", "1");
    admin.create(policy(NS, "map", &map, &NAMES)).await;
    admin.create(map).await;
    for member in &members.all {
        member.server.until_there(&CONFIG_MAPS, NS, "map").await;
        let there = member.server.get(&DEPLOYMENTS, NS, "late").await;
        assert_eq!(there, None);
        member.server.until_there(&DEPLOYMENTS, NS, "early").await;
    }
    let late = admin.until_there(&DEPLOYMENTS, NS, "late").await;
    assert_eq!(
        late["metadata"].get("labels"),
        Some(&json!({"app": "late"}))
    );
}

async fn propagate(host: &Behind, members: &Members) {
    let admin = &host.control;
    for member in &members.all {
        member.server.until_there(&DEPLOYMENTS, NS, "late").await;
    }
    let applied = |b: &Value| {
        let all = b["status"]["aggregatedStatus"].as_array();
        condition(b, "Scheduled")["status"] == "True"
            && all.is_some_and(|all| all.iter().filter(|i| i["health"] == "Healthy").count() == 2)
    };
    admin
        .until(&BINDINGS, NS, "late-deployment", "healthy", applied)
        .await;
    let late = admin.until_there(&DEPLOYMENTS, NS, "late").await;
    assert_eq!(late["status"], json!({}), "the host sets the status");
}
