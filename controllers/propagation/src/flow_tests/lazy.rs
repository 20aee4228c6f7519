//! Tests of Lazy policies.

use openapi::karmada::Gate;
use openapi::karmada::labels;
use openapi::karmada::resources::{BINDINGS, POLICIES};
use serde_json::{Value, json};

use super::claims::{named, preempting};
use super::{DEPLOYMENTS, Plane, deployment, policy, until};

fn clusters(plane: &Plane, name: &str) -> Value {
    let binding = plane.binding(&format!("{name}-deployment"));
    let spec = &binding.unwrap_or_default()["spec"];
    spec["placement"]["clusterAffinity"]["clusterNames"].clone()
}

// proves: DET-lazy-restart
#[tokio::test]
async fn a_restart_applies_pending_changes_of_lazy_policies() {
    let mut plane = Plane::new();
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.start().await;
    let lazy = json!({"activationPreference": "Lazy"});
    plane.control.seed(&POLICIES, policy(lazy));
    let claimed = |plane: &Plane| {
        let template = plane.control.object(&DEPLOYMENTS, "n", "web").unwrap();
        template["metadata"]["labels"][labels::POLICY_ID] == "policy-id"
    };
    until("the claim", || claimed(&plane)).await;
    assert!(plane.control.objects(&BINDINGS).is_empty());
    plane.tasks.stop().await;

    plane.start().await;
    plane.applied("web").await;
    plane.change(&POLICIES, "p", |p| {
        p["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m1"]);
    });
    plane.control.seed(&DEPLOYMENTS, deployment("new"));
    until("a new one", || clusters(&plane, "new") == json!(["m1"])).await;
    assert_eq!(clusters(&plane, "web"), json!(["m1", "m2"]));
    plane.tasks.stop().await;

    plane.start().await;
    until("the edit", || clusters(&plane, "web") == json!(["m1"])).await;
    plane.tasks.stop().await;
}

// proves: DET-lazy-preempt
#[tokio::test]
async fn a_lazy_policy_that_preempts_leaves_the_binding_as_it_is() {
    let plane = Plane::new();
    let plane = plane
        .started_with(&[Gate::PropagationPolicyPreemption])
        .await;
    plane.control.seed(&POLICIES, named("low", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "low").await;
    let mut lazy = preempting(2, &["m2"]);
    lazy["activationPreference"] = "Lazy".into();
    plane.control.seed(&POLICIES, named("high", lazy));
    until("the claim", || plane.owners("web").0 == "high").await;
    plane.control.seed(&DEPLOYMENTS, deployment("other"));
    plane.belongs_to("other", "low").await;
    assert_eq!(plane.owners("web"), (json!("high"), json!("low")));
    assert_eq!(clusters(&plane, "web"), json!(["m1", "m2"]));
    plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 3.into());
    plane.belongs_to("web", "high").await;
    until("its placement", || clusters(&plane, "web") == json!(["m2"])).await;
    plane.tasks.stop().await;
}
