//! Workloads of a host that has nodes: Flotilla does not propagate them, because the host runs
//! them itself, unless `--host-workloads=propagate` is set.

use client::{ResourcePath, WriteOptions};
use harness::api_server_client::{find_condition, wait_until};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, config_map, deployment, policy,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{MEMBER_NAMES, RealMemberClusters};

const NS: &str = "workloads";
const PROPAGATE_FLAG: &str = "--host-workloads=propagate";

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static EVENTS: Gvr = Gvr::from_static("", "v1", "events");

pub(crate) async fn run_scenario(host: &mut AggregatedControlPlane, members: &RealMemberClusters) {
    host.client.create_namespace(NS).await;
    let early = deployment(NS, "early", 1);
    host.client
        .create(policy(NS, "early", &early, &MEMBER_NAMES))
        .await;
    host.client.create(early).await;
    for member in &members.all {
        member
            .server
            .wait_until_exists(&DEPLOYMENTS, NS, "early")
            .await;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "host-node"}});
    let (nodes, options) = (
        ResourcePath::collection(&NODES, ""),
        WriteOptions::default(),
    );
    let created = host.client.api.create(nodes, node.into(), &options).await;
    created.unwrap();
    check_not_scheduled(host, members).await;
    host.kill();
    host.start_flotilla_with(&[PROPAGATE_FLAG]);
    host.wait_until_available().await;
    check_propagated(host, members).await;
    host.client.delete(&NODES, "", "host-node").await;
    host.kill();
    host.start_flotilla();
    host.wait_until_available().await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 2;
    let admin = &host.client;
    admin
        .wait_until(
            &DEPLOYMENTS,
            NS,
            "late",
            "aggregated from its members again",
            ready,
        )
        .await;
    admin.delete(&NAMESPACES, "", NS).await;
    admin.wait_until_deleted(&NAMESPACES, "", NS).await;
}

async fn check_not_scheduled(host: &AggregatedControlPlane, members: &RealMemberClusters) {
    let admin = &host.client;
    let is_rejected = |b: &Value| find_condition(b, "Scheduled")["reason"] == "HostRunsWorkloads";
    // The binding keeps its clusters, and the objects in the members stay.
    let binding = admin
        .wait_until(&BINDINGS, NS, "early-deployment", "refused", is_rejected)
        .await;
    assert_eq!(
        binding["spec"]["clusters"].as_array().map(Vec::len),
        Some(2)
    );

    let late = deployment(NS, "late", 1);
    admin.create(policy(NS, "late", &late, &MEMBER_NAMES)).await;
    admin.create(late).await;
    let binding = admin
        .wait_until(&BINDINGS, NS, "late-deployment", "refused", is_rejected)
        .await;
    assert_eq!(binding["spec"].get("clusters"), None);
    wait_until("an event names the flag", async || {
        let all = admin.list(&EVENTS, NS).await;
        all.iter().any(|e| {
            e["involvedObject"]["name"] == "late"
                && e["reason"] == "ApplyPolicyFailed"
                && e["message"]
                    .as_str()
                    .is_some_and(|m| m.contains(PROPAGATE_FLAG))
        })
    })
    .await;
    // Objects that are not workloads are propagated.
    let map = config_map(NS, "map", "1");
    admin.create(policy(NS, "map", &map, &MEMBER_NAMES)).await;
    admin.create(map).await;
    for member in &members.all {
        member
            .server
            .wait_until_exists(&CONFIG_MAPS, NS, "map")
            .await;
        let there = member.server.get(&DEPLOYMENTS, NS, "late").await;
        assert_eq!(there, None);
        member
            .server
            .wait_until_exists(&DEPLOYMENTS, NS, "early")
            .await;
    }
    let late = admin.wait_until_exists(&DEPLOYMENTS, NS, "late").await;
    assert_eq!(
        late["metadata"].get("labels"),
        Some(&json!({"app": "late"}))
    );
}

async fn check_propagated(host: &AggregatedControlPlane, members: &RealMemberClusters) {
    let admin = &host.client;
    for member in &members.all {
        member
            .server
            .wait_until_exists(&DEPLOYMENTS, NS, "late")
            .await;
    }
    let applied = |b: &Value| {
        let all = b["status"]["aggregatedStatus"].as_array();
        find_condition(b, "Scheduled")["status"] == "True"
            && all.is_some_and(|all| all.iter().filter(|i| i["health"] == "Healthy").count() == 2)
    };
    admin
        .wait_until(&BINDINGS, NS, "late-deployment", "healthy", applied)
        .await;
    let late = admin.wait_until_exists(&DEPLOYMENTS, NS, "late").await;
    assert_eq!(late["status"], json!({}), "the host sets the status");
}
