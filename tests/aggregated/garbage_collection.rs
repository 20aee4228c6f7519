//! The host's kube-controller-manager and objects that Flotilla serves: garbage collection by
//! owner references, and the deletion of namespaces.
//!
//! While Flotilla does not respond, the garbage collector must not delete the dependents of
//! objects that Flotilla serves.

use std::time::{Duration, Instant};

use client::ResourcePath;
use harness::api_server_client::wait_until;
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, POLICIES, WORKS, config_map, deployment,
    execution_space, policy,
};
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{MEMBER_NAMES, RealMemberClusters};

const NS: &str = "collection";
/// How long the garbage collector may take to look up the owners of an object.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn run_scenario(
    control_plane: &mut AggregatedControlPlane,
    members: &RealMemberClusters,
) {
    control_plane.client.create_namespace(NS).await;
    let template = deployment(NS, "web", 2);
    control_plane
        .client
        .create(policy(NS, "web", &template, &MEMBER_NAMES))
        .await;
    control_plane.client.create(template).await;
    for member in &members.all {
        member
            .server
            .wait_until_exists(&DEPLOYMENTS, NS, "web")
            .await;
    }
    check_outage(control_plane, members).await;
    check_owner_deletion(control_plane, members).await;
    check_namespace_deletion(control_plane, members).await;
}

/// Makes the garbage collector look up a binding, and returns whether it received a response
/// with this code.
///
/// The collector looks up the owners of an object with two owners when one of them is
/// deleted. `n` makes the names of these objects unique.
async fn collector_reads_owner(
    control_plane: &AggregatedControlPlane,
    n: usize,
    binding: &Value,
    code: u16,
) -> bool {
    let control = &control_plane.client;
    let (first, second) = (format!("first-{n}"), format!("second-{n}"));
    let owner = control.create(config_map(NS, &first, "1")).await;
    let mut owned = config_map(NS, &second, "1");
    owned["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": first, "uid": owner["metadata"]["uid"]},
        owner_reference(binding),
    ]);
    control.create(owned).await;
    let of_collector = |event: &Value| {
        let agent = event["userAgent"].as_str().unwrap_or_default();
        agent.contains("garbage-collector")
            && event["objectRef"]["name"] == binding["metadata"]["name"]
            && event["responseStatus"]["code"] == code
    };
    let response_count = || {
        control_plane
            .audit_events()
            .iter()
            .filter(|e| of_collector(e))
            .count()
    };
    let before = response_count();
    control.delete(&CONFIG_MAPS, NS, &first).await;
    let end = Instant::now() + COLLECTOR_TIMEOUT;
    while response_count() == before {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}

/// Kills Flotilla and waits until the garbage collector has received a 503 for a binding.
///
/// The collector discovers resources every 30 seconds. It adds those of Flotilla then, and drops
/// them when the discovery fails. If it drops them before the 503, the outage is repeated.
async fn stop_while_collector_reads_owner(
    control_plane: &mut AggregatedControlPlane,
    binding: &Value,
) {
    const MAX_OUTAGES: usize = 6;
    const READS_PER_OUTAGE: usize = 10;
    for outage in 0..MAX_OUTAGES {
        let mut n = outage * (READS_PER_OUTAGE + 1);
        while !collector_reads_owner(control_plane, n, binding, 200).await {
            n += 1;
            assert!(
                n % (READS_PER_OUTAGE + 1) < READS_PER_OUTAGE,
                "the collector never looks up the binding"
            );
        }
        n += 1;
        control_plane.kill();
        if collector_reads_owner(control_plane, n, binding, 503).await {
            let kept = format!("second-{n}");
            control_plane
                .client
                .wait_until_exists(&CONFIG_MAPS, NS, &kept)
                .await;
            return;
        }
        control_plane.start_flotilla();
        control_plane.wait_until_available().await;
    }
    panic!("the collector does not look up the binding while Flotilla is down");
}

fn owner_reference(binding: &Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "name": binding["metadata"]["name"], "uid": binding["metadata"]["uid"],
    })
}

/// The garbage collector reads owners while Flotilla is down, and deletes nothing.
async fn check_outage(control_plane: &mut AggregatedControlPlane, members: &RealMemberClusters) {
    let before = control_plane
        .client
        .wait_until_exists(&BINDINGS, NS, "web-deployment")
        .await;
    stop_while_collector_reads_owner(control_plane, &before).await;
    // A collector that starts has an empty graph and no cached discovery.
    let manager = control_plane.host.controller_manager.as_mut().unwrap();
    manager.kill();
    manager.restart();
    // A dependent whose owner is in an unavailable group: a ConfigMap owned by a binding.
    let mut dependent = config_map(NS, "dependent", "1");
    dependent["metadata"]["ownerReferences"] = json!([owner_reference(&before)]);
    control_plane.client.create(dependent).await;
    // The collector goes on with owners in available groups.
    let owner = control_plane
        .client
        .create(config_map(NS, "owner", "1"))
        .await;
    let mut owned = config_map(NS, "owned", "1");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    }]);
    control_plane.client.create(owned).await;
    control_plane.start_flotilla();
    wait_until("the binding can be read again", async || {
        let at = ResourcePath::object(&BINDINGS, NS, "web-deployment");
        control_plane.client.api.get(at).await.is_ok()
    })
    .await;
    control_plane.client.delete(&CONFIG_MAPS, NS, "owner").await;
    control_plane
        .client
        .wait_until_deleted(&CONFIG_MAPS, NS, "owned")
        .await;
    let after = control_plane
        .client
        .wait_until_exists(&BINDINGS, NS, "web-deployment")
        .await;
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    control_plane
        .client
        .wait_until_exists(&CONFIG_MAPS, NS, "dependent")
        .await;
    // The binding can be looked up now, so the collector removes the reference to the deleted
    // owner.
    wait_until("the objects with two owners have one", async || {
        let all = control_plane.client.list(&CONFIG_MAPS, NS).await;
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
        member
            .server
            .wait_until_exists(&DEPLOYMENTS, NS, "web")
            .await;
    }
}

/// The deletion of a template deletes its binding, the Works, the objects in the members, and
/// the dependents of the binding.
async fn check_owner_deletion(
    control_plane: &AggregatedControlPlane,
    members: &RealMemberClusters,
) {
    control_plane.client.delete(&DEPLOYMENTS, NS, "web").await;
    control_plane
        .client
        .wait_until_deleted(&BINDINGS, NS, "web-deployment")
        .await;
    control_plane
        .client
        .wait_until_deleted(&CONFIG_MAPS, NS, "dependent")
        .await;
    for member in &members.all {
        member
            .server
            .wait_until_deleted(&DEPLOYMENTS, NS, "web")
            .await;
        wait_until_no_works(control_plane, member.name, "web-").await;
    }
}

async fn wait_until_no_works(control_plane: &AggregatedControlPlane, cluster: &str, prefix: &str) {
    let works = execution_space(cluster);
    wait_until("its works are gone", async || {
        let all = control_plane.client.list(&WORKS, &works).await;
        let of = |w: &Value| {
            let name = w["metadata"]["name"].as_str();
            name.is_some_and(|n| n.starts_with(prefix))
        };
        !all.iter().any(of)
    })
    .await;
}

/// The deletion of a namespace also deletes the objects in it that Flotilla serves.
async fn check_namespace_deletion(
    control_plane: &AggregatedControlPlane,
    members: &RealMemberClusters,
) {
    let template = config_map(NS, "last", "1");
    control_plane
        .client
        .create(policy(NS, "last", &template, &MEMBER_NAMES))
        .await;
    control_plane.client.create(template).await;
    for member in &members.all {
        member
            .server
            .wait_until_exists(&CONFIG_MAPS, NS, "last")
            .await;
    }
    control_plane.client.delete(&NAMESPACES, "", NS).await;
    control_plane
        .client
        .wait_until_deleted(&NAMESPACES, "", NS)
        .await;
    assert_eq!(
        control_plane.client.list(&POLICIES, NS).await,
        [] as [Value; 0]
    );
    assert_eq!(
        control_plane.client.list(&BINDINGS, NS).await,
        [] as [Value; 0]
    );
    for member in &members.all {
        member.server.wait_until_deleted(&NAMESPACES, "", NS).await;
    }
}
