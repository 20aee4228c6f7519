//! Services that one member exports and others import.

use harness::shared_services::{
    propagate_service_definitions, share_service, wait_for_service_endpoints,
};
use serde_json::json;

use crate::flow::fleet::{
    ApiServerClient, FleetFixture, run_flotilla, wait_for_namespace, wait_until,
};
use crate::flow::member_outage::start_member;
use crate::flow::objects::{
    DEPLOYMENTS, ENDPOINT_SLICES, SERVICE_EXPORTS, SERVICE_IMPORTS, SERVICES,
};
use crate::flow::pull_members::{NAME, PullFixture};

const OUTAGE_FLAGS: &[&str] = &[
    "--cluster-status-update-frequency",
    "500ms",
    "--cluster-failure-threshold",
    "1s",
    "--cluster-success-threshold",
    "1s",
];

async fn wait_for_endpoints(member: &ApiServerClient, ns: &str, count: usize) {
    wait_for_service_endpoints(member, ns, "derived-web", count).await;
}

// proves: SVC-follows, SVC-unexported, SVC-derived, HOL-endpoints
#[tokio::test]
async fn exported_endpoints_follow_the_exporting_member() {
    let ns = "shared-services";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    share_service(control, ns, "member1", "member2").await;
    let importer = fleet.member("member2");
    wait_for_endpoints(importer, ns, 2).await;
    let derived = importer
        .wait_until_exists(&SERVICES, ns, "derived-web")
        .await;
    assert_eq!(derived["spec"]["ports"][0]["port"], 80);
    assert!(derived["spec"]["clusterIP"].is_string());
    let slices = importer.list(&ENDPOINT_SLICES, ns).await;
    let [slice] = &slices[..] else {
        panic!("{slices:?}");
    };
    assert_eq!(slice["ports"][0]["port"], 8080);
    let name = slice["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("imported-member1-web-"), "{name}");

    let more = json!({"spec": {"replicas": 3}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", more).await;
    wait_for_endpoints(importer, ns, 3).await;
    let none = json!({"spec": {"replicas": 0}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", none).await;
    wait_for_endpoints(importer, ns, 0).await;
    let one = json!({"spec": {"replicas": 1}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", one).await;
    wait_for_endpoints(importer, ns, 1).await;

    control.delete(&SERVICE_EXPORTS, ns, "web").await;
    let no_slices = async |client: &ApiServerClient| {
        let slices = client.list(&ENDPOINT_SLICES, ns).await;
        slices.is_empty()
    };
    wait_until("no slices", async || {
        no_slices(importer).await && no_slices(control).await
    })
    .await;
    control.delete(&SERVICE_IMPORTS, ns, "web").await;
    for client in [control, importer] {
        client
            .wait_until_deleted(&SERVICES, ns, "derived-web")
            .await;
    }
}

// proves: SVC-definitions
#[tokio::test]
async fn the_definitions_of_exports_and_imports_reach_members() {
    let fleet = FleetFixture::shared("service-definitions").await;
    propagate_service_definitions(&fleet.control, fleet.member("member1"), "member1").await;
}

// proves: SVC-provider-dies
#[tokio::test]
async fn endpoints_of_a_dead_member_are_withdrawn_until_it_returns() {
    let (ns, exporter) = ("dying-provider", "provider");
    let fleet = FleetFixture::with_flags(OUTAGE_FLAGS, ns).await;
    let control = &fleet.control;
    let dir = tempfile::tempdir().unwrap();
    let process = start_member(dir.path()).await;
    let member_kubeconfig = dir.path().join("kubeconfig").display().to_string();
    let own = fleet.kubeconfig().display().to_string();
    run_flotilla(&[
        "join",
        exporter,
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--kubeconfig",
        &own,
    ])
    .await;
    control.wait_until_cluster_ready(exporter).await;
    share_service(control, ns, exporter, "member1").await;
    let importer = fleet.member("member1");
    wait_for_endpoints(importer, ns, 2).await;
    drop(process);
    wait_for_endpoints(importer, ns, 0).await;
    let _process = start_member(dir.path()).await;
    wait_for_endpoints(importer, ns, 2).await;
}

// proves: SVC-agent
#[tokio::test]
async fn the_agent_of_a_pull_member_exports_its_services() {
    let ns = "pulled-services";
    let fleet = PullFixture::start().await;
    fleet.register().await;
    let config = fleet.agent_kubeconfig().await;
    let _agent = fleet.start_agent(&config, &[]).await;
    let control = &fleet.control;
    control.wait_until_cluster_ready(NAME).await;
    control.create_namespace(ns).await;
    share_service(control, ns, NAME, "member1").await;
    let members = fleet.up.members();
    let importer = members.iter().find(|m| m.name == "member1").unwrap();
    wait_for_endpoints(importer, ns, 2).await;
    let more = json!({"spec": {"replicas": 3}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", more).await;
    wait_for_endpoints(importer, ns, 3).await;
    control.delete(&SERVICE_EXPORTS, ns, "web").await;
    wait_for_endpoints(importer, ns, 0).await;
}
