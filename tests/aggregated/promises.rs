//! One test of each promise of running behind a kube-apiserver, on one control plane with simulated
//! members and an etcd of its own. The slow tests of this area have real members and restarts.

use harness::api_server_client::wait_until;
use harness::objects::{BINDINGS, DEPLOYMENTS, deployment, divided_policy};
use harness::{ApiServerClient, EtcdCluster, etcd};
use serde_json::Value;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::autoscalers_and_services::{CONSUMER, PROVIDER};
use crate::aggregated::simulated_member::SimulatedMember;
use crate::aggregated::{
    auth, autoscalers_and_services, deletion_protection, fleet_view, pull_members, registration,
    search, store_outage, webhooks,
};

// proves: FHP-host, MCS-host, SVC-host, SVC-definitions, MAG-register
// proves: ADM-protection-host, PUL-host, TUN-host, SRC-search, SRC-native-rights, SRC-update, SRC-elsewhere
// proves: FLV-host
#[tokio::test(flavor = "multi_thread")]
async fn flotilla_keeps_its_promises_behind_a_kube_apiserver() {
    let simulated = async {
        (
            SimulatedMember::start(PROVIDER).await,
            SimulatedMember::start(CONSUMER).await,
        )
    };
    let (Some(mut control_plane), (provider, consumer)) =
        tokio::join!(AggregatedControlPlane::prepare(), simulated)
    else {
        return;
    };
    let Some(mut own) = tokio::task::block_in_place(|| EtcdCluster::start(etcd::VERSION_3_5, 1))
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let store = own.endpoints();
    let flags = [
        "--etcd-servers",
        &store,
        "--metrics-api-services=IfNotPresent",
    ];
    let members = [&provider, &consumer];
    let _slices = autoscalers_and_services::start_with_members(
        &mut control_plane,
        &flags,
        members,
        dir.path(),
    )
    .await;
    registration::expect_metrics(&control_plane).await;
    expect_openapi(&control_plane.client).await;
    auth::run_scenario(&control_plane).await;
    propagate_deployment(&control_plane.client).await;
    autoscalers_and_services::run_scenario(&control_plane.client, &consumer.server).await;
    search::run_scenario(&control_plane, &provider.server).await;
    fleet_view::run_scenario(&control_plane, [&provider.server, &consumer.server]).await;
    pull_members::run_scenario(&control_plane).await;
    webhooks::run_scenario(&control_plane).await;
    deletion_protection::run_scenario(&mut control_plane, &flags).await;
    store_outage::run_scenario(&control_plane, &mut own).await;
}

/// The aggregator has read the documents of Flotilla.
async fn expect_openapi(control: &ApiServerClient) {
    wait_until("the host's OpenAPI has the policies", async || {
        let Ok(body) = control.api.get_raw("/openapi/v2").await else {
            return false;
        };
        let document: Value = machinery::json::from_slice(&body).unwrap();
        let path = "/apis/policy.karmada.io/v1alpha1/propagationpolicies";
        document["paths"][path].is_object()
    })
    .await;
}

/// The host's Deployment is divided between the members, and gets its status.
async fn propagate_deployment(control: &ApiServerClient) {
    let ns = "propagated";
    control.create_namespace(ns).await;
    let template = deployment(ns, "web", 4);
    let weights = [(PROVIDER, 1), (CONSUMER, 1)];
    control
        .create(divided_policy(ns, "web", &template, &weights))
        .await;
    control.create(template).await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 4;
    control
        .wait_until(&DEPLOYMENTS, ns, "web", "4 ready", ready)
        .await;
    control.delete(&DEPLOYMENTS, ns, "web").await;
    control
        .wait_until_deleted(&BINDINGS, ns, "web-deployment")
        .await;
}
