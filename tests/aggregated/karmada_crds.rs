//! Karmada's CustomResourceDefinitions in the host, as GitOps repositories contain them:
//! created before Flotilla registers its APIServices or after, with restarts of host and
//! Flotilla.

use harness::ApiServerClient;
use harness::api_server_client::{find_condition, wait_until};
use harness::karmada_crds::karmada_definitions;
use harness::objects::{API_SERVICES, DEFINITIONS, POLICIES, config_map, policy};
use serde_json::Value;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::MEMBER_NAMES;

const NS: &str = "definitions";
const API_SERVICE: &str = "v1alpha1.policy.karmada.io";
const POLICIES_CRD: &str = "propagationpolicies.policy.karmada.io";

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn registration_supersedes_existing_crds() {
    let Some(mut control_plane) = AggregatedControlPlane::prepare().await else {
        return;
    };
    control_plane.client.create_namespace(NS).await;
    create_crds(&control_plane.client).await;
    let registered = |s: &Value| s["spec"]["service"].is_null();
    control_plane
        .client
        .wait_until(&API_SERVICES, "", API_SERVICE, "the host's own", registered)
        .await;
    wait_until("the definition is served", async || {
        control_plane
            .client
            .try_create(config_map_policy("theirs"))
            .await
            .is_ok()
    })
    .await;

    // Flotilla does not start while its APIServices would hide objects of the host. It names
    // them, and the host goes on to serve them.
    let output = control_plane.expect_start_failure().await;
    for part in [POLICIES_CRD, "definitions/theirs", "kubectl delete crd"] {
        assert!(output.contains(part), "no {part}: {output}");
    }
    for service in control_plane.api_services().await {
        assert!(service["spec"]["service"].is_null(), "{service:#}");
    }
    control_plane.client.delete(&POLICIES, NS, "theirs").await;

    control_plane.start_flotilla();
    control_plane.wait_until_available().await;
    let service = control_plane
        .client
        .get(&API_SERVICES, "", API_SERVICE)
        .await;
    assert_eq!(service.unwrap()["spec"]["service"]["name"], "flotilla");
    assert!(policy_names(&control_plane.client).await.is_empty());
    control_plane.client.create(config_map_policy("ours")).await;
    check_restarts_and_crd_deletion(&mut control_plane).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn crds_created_after_registration_change_nothing() {
    let Some(mut control_plane) = AggregatedControlPlane::start().await else {
        return;
    };
    control_plane.wait_until_available().await;
    control_plane.client.create_namespace(NS).await;
    control_plane.client.create(config_map_policy("ours")).await;
    create_crds(&control_plane.client).await;
    assert_eq!(policy_names(&control_plane.client).await, ["ours"]);
    check_restarts_and_crd_deletion(&mut control_plane).await;
}

/// Flotilla's policies survive restarts of host and Flotilla in both orders, and the deletion
/// of the CRDs.
async fn check_restarts_and_crd_deletion(control_plane: &mut AggregatedControlPlane) {
    for host_first in [true, false] {
        if !host_first {
            control_plane.kill();
        }
        control_plane.host.apiserver.kill();
        control_plane.host.apiserver.restart();
        control_plane.host.wait_ready();
        if host_first {
            control_plane.kill();
        }
        control_plane.start_flotilla();
        control_plane.wait_until_available().await;
        assert_eq!(policy_names(&control_plane.client).await, ["ours"]);
    }
    for definition in karmada_definitions() {
        let control = &control_plane.client;
        control.delete(&DEFINITIONS, "", &definition.name).await;
        control
            .wait_until_deleted(&DEFINITIONS, "", &definition.name)
            .await;
    }
    control_plane.wait_until_available().await;
    control_plane
        .client
        .create(config_map_policy("after"))
        .await;
    assert_eq!(policy_names(&control_plane.client).await, ["after", "ours"]);
}

/// Creates all of Karmada's CRDs and waits until they are established. Flotilla has created those of
/// services across clusters if it has started before.
async fn create_crds(host: &ApiServerClient) {
    let all = karmada_definitions();
    for definition in &all {
        if host.get(&DEFINITIONS, "", &definition.name).await.is_none() {
            host.create(definition.object.clone()).await;
        }
    }
    for definition in &all {
        let established = |d: &Value| find_condition(d, "Established")["status"] == "True";
        host.wait_until(
            &DEFINITIONS,
            "",
            &definition.name,
            "established",
            established,
        )
        .await;
    }
}

fn config_map_policy(name: &str) -> Value {
    policy(NS, name, &config_map(NS, name, "1"), &MEMBER_NAMES)
}

async fn policy_names(control: &ApiServerClient) -> Vec<String> {
    let all = control.list(&POLICIES, NS).await;
    let names = all.iter().map(|p| p["metadata"]["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}
