//! Tests of Lazy policies.

use karmada_api::KarmadaFeature;
use karmada_api::resources::{BINDINGS, POLICIES};
use karmada_api::well_known_keys;
use serde_json::{Value, json};

use super::claims::{policy_named, preempting_spec};
use super::{DEPLOYMENTS, PropagationFixture, deployment, policy, wait_until};

fn placement_clusters(plane: &PropagationFixture, name: &str) -> Value {
    let binding = plane.binding(&format!("{name}-deployment"));
    let spec = &binding.unwrap_or_default()["spec"];
    spec["placement"]["clusterAffinity"]["clusterNames"].clone()
}

// proves: DET-lazy-restart
#[tokio::test]
async fn a_restart_applies_pending_changes_of_lazy_policies() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.start().await;
    let lazy = json!({"activationPreference": "Lazy"});
    plane.control_plane.seed(&POLICIES, policy(lazy));
    let claimed = |plane: &PropagationFixture| {
        let template = plane
            .control_plane
            .get_object(&DEPLOYMENTS, "n", "web")
            .unwrap();
        template["metadata"]["labels"][well_known_keys::POLICY_ID] == "policy-id"
    };
    wait_until("the claim", || claimed(&plane)).await;
    assert!(plane.control_plane.list_objects(&BINDINGS).is_empty());
    plane.tasks.stop().await;

    plane.start().await;
    plane.wait_until_applied("web").await;
    plane.edit(&POLICIES, "p", |p| {
        p["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m1"]);
    });
    plane.control_plane.seed(&DEPLOYMENTS, deployment("new"));
    wait_until("a new one", || {
        placement_clusters(&plane, "new") == json!(["m1"])
    })
    .await;
    assert_eq!(placement_clusters(&plane, "web"), json!(["m1", "m2"]));
    plane.tasks.stop().await;

    plane.start().await;
    wait_until("the edit", || {
        placement_clusters(&plane, "web") == json!(["m1"])
    })
    .await;
    plane.tasks.stop().await;
}

// proves: DET-lazy-preempt
#[tokio::test]
async fn a_lazy_policy_that_preempts_leaves_the_binding_as_it_is() {
    let plane = PropagationFixture::new();
    let plane = plane
        .started_with_gates(&[KarmadaFeature::PropagationPolicyPreemption])
        .await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("low", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "low").await;
    let mut lazy = preempting_spec(2, &["m2"]);
    lazy["activationPreference"] = "Lazy".into();
    plane
        .control_plane
        .seed(&POLICIES, policy_named("high", lazy));
    wait_until("the claim", || plane.claiming_policies("web").0 == "high").await;
    plane.control_plane.seed(&DEPLOYMENTS, deployment("other"));
    plane.wait_until_claimed("other", "low").await;
    assert_eq!(
        plane.claiming_policies("web"),
        (json!("high"), json!("low"))
    );
    assert_eq!(placement_clusters(&plane, "web"), json!(["m1", "m2"]));
    plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    plane.wait_until_claimed("web", "high").await;
    wait_until("its placement", || {
        placement_clusters(&plane, "web") == json!(["m2"])
    })
    .await;
    plane.tasks.stop().await;
}
