//! Karmada's CustomResourceDefinitions in the host, as GitOps repositories contain them:
//! created before Flotilla registers its APIServices or after, with restarts of host and
//! Flotilla.

use harness::Server;
use harness::karmada_definitions::karmada_definitions;
use harness::objects::{API_SERVICES, DEFINITIONS, POLICIES, config_map, policy};
use harness::server::{condition, until};
use serde_json::Value;

use crate::behind::Behind;
use crate::world::NAMES;

const NS: &str = "definitions";
const SERVICE: &str = "v1alpha1.policy.karmada.io";
const POLICIES_DEFINITION: &str = "propagationpolicies.policy.karmada.io";

#[tokio::test(flavor = "multi_thread")]
async fn registration_supersedes_existing_crds() {
    let Some(mut control_plane) = Behind::prepare().await else {
        return;
    };
    control_plane.control.namespace(NS).await;
    apply(&control_plane.control).await;
    let registered = |s: &Value| s["spec"]["service"].is_null();
    control_plane
        .control
        .until(&API_SERVICES, "", SERVICE, "the host's own", registered)
        .await;
    until("the definition is served", async || {
        control_plane.control.try_create(of("theirs")).await.is_ok()
    })
    .await;

    // Flotilla does not start while its APIServices would hide objects of the host. It names
    // them, and the host goes on to serve them.
    let output = control_plane.refused().await;
    for part in [
        POLICIES_DEFINITION,
        "definitions/theirs",
        "kubectl delete crd",
    ] {
        assert!(output.contains(part), "no {part}: {output}");
    }
    for service in control_plane.registered().await {
        assert!(service["spec"]["service"].is_null(), "{service:#}");
    }
    control_plane.control.delete(&POLICIES, NS, "theirs").await;

    control_plane.run();
    control_plane.until_available().await;
    let service = control_plane.control.get(&API_SERVICES, "", SERVICE).await;
    assert_eq!(service.unwrap()["spec"]["service"]["name"], "flotilla");
    assert!(policies(&control_plane.control).await.is_empty());
    control_plane.control.create(of("ours")).await;
    stays(&mut control_plane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crds_created_after_registration_change_nothing() {
    let Some(mut control_plane) = Behind::start().await else {
        return;
    };
    control_plane.until_available().await;
    control_plane.control.namespace(NS).await;
    control_plane.control.create(of("ours")).await;
    apply(&control_plane.control).await;
    assert_eq!(policies(&control_plane.control).await, ["ours"]);
    stays(&mut control_plane).await;
}

/// Flotilla's policies survive restarts of host and Flotilla in both orders, and the deletion
/// of the CRDs.
async fn stays(control_plane: &mut Behind) {
    for host_first in [true, false] {
        if !host_first {
            control_plane.kill();
        }
        control_plane.host.apiserver.kill();
        control_plane.host.apiserver.again();
        control_plane.host.wait();
        if host_first {
            control_plane.kill();
        }
        control_plane.run();
        control_plane.until_available().await;
        assert_eq!(policies(&control_plane.control).await, ["ours"]);
    }
    for definition in karmada_definitions() {
        let control = &control_plane.control;
        control.delete(&DEFINITIONS, "", &definition.name).await;
        control.until_gone(&DEFINITIONS, "", &definition.name).await;
    }
    control_plane.until_available().await;
    control_plane.control.create(of("after")).await;
    assert_eq!(policies(&control_plane.control).await, ["after", "ours"]);
}

/// Creates all of Karmada's CRDs and waits until they are established.
async fn apply(host: &Server) {
    let all = karmada_definitions();
    for definition in &all {
        host.create(definition.object.clone()).await;
    }
    for definition in &all {
        let established = |d: &Value| condition(d, "Established")["status"] == "True";
        host.until(
            &DEFINITIONS,
            "",
            &definition.name,
            "established",
            established,
        )
        .await;
    }
}

fn of(name: &str) -> Value {
    policy(NS, name, &config_map(NS, name, "1"), &NAMES)
}

async fn policies(control: &Server) -> Vec<String> {
    let all = control.list(&POLICIES, NS).await;
    let names = all.iter().map(|p| p["metadata"]["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}
