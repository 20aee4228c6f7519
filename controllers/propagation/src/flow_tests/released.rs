//! Tests of released claims, failed claims and recreated templates.

use std::sync::atomic::{AtomicUsize, Ordering};

use client::{Api, At, DeleteOptions};
use machinery::{Gvr, Status};
use openapi::karmada::Gate;
use openapi::karmada::labels;
use openapi::karmada::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, OVERRIDES, POLICIES, WORKS,
};
use serde_json::{Value, json};

use super::claims::{named, of_cluster, preempting};
use super::{CLUSTER_ROLES, DEPLOYMENTS, Plane, deployment, policy, until};

/// The claim of a policy whose name is also its id.
fn claimed_by(policy: &str) -> Value {
    json!({
        "labels": {labels::POLICY_ID: policy},
        "annotations": {labels::POLICY_NAMESPACE: "n", labels::POLICY_NAME: policy},
    })
}

fn with_marks(mut object: Value, marks: &Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.extend(marks.as_object().unwrap().clone());
    object
}

fn binding_of(template: &str, marks: &Value) -> Value {
    let binding = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{template}-deployment"), "namespace": "n"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": template}}});
    with_marks(binding, marks)
}

// proves: DET-policy-gone, DET-release-owner, DET-waiting
#[tokio::test]
async fn a_claim_of_a_missing_policy_is_released() {
    let plane = Plane::new();
    let missing = claimed_by("gone");
    for name in ["web", "other"] {
        let template = with_marks(deployment(name), &missing);
        plane.control.seed(&DEPLOYMENTS, template);
    }
    plane.control.seed(&BINDINGS, binding_of("web", &missing));
    let another = binding_of("other", &claimed_by("another"));
    plane.control.seed(&BINDINGS, another);
    let plane = plane.started().await;
    until("unclaimed", || {
        plane.owners("web") == (Value::Null, Value::Null)
    })
    .await;
    let kept = || plane.owners("other") == (Value::Null, json!("another"));
    until("the other's binding as it was", kept).await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["metadata"]["annotations"], Value::Null);
    // Released templates can be claimed by any new policy.
    plane.control.seed(&POLICIES, named("next", json!({})));
    plane.belongs_to("web", "next").await;
    plane.belongs_to("other", "next").await;
    plane.tasks.stop().await;
}

// proves: DET-unmatched-waits
#[tokio::test]
async fn a_template_that_no_longer_matches_is_released_when_its_policy_changes() {
    let plane = Plane::new().started().await;
    let labelled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"app": "x"}}});
    let selecting = json!({"resourceSelectors": [labelled]});
    plane.control.seed(&POLICIES, named("p", selecting));
    let fitting = |name: &str| with_marks(deployment(name), &json!({"labels": {"app": "x"}}));
    plane.control.seed(&DEPLOYMENTS, fitting("web"));
    plane.belongs_to("web", "p").await;
    plane.change(&DEPLOYMENTS, "web", |d| {
        d["metadata"]["labels"]["app"] = "y".into();
        d["spec"]["replicas"] = 7.into();
    });
    plane.control.seed(&DEPLOYMENTS, fitting("later"));
    plane.belongs_to("later", "p").await;
    plane.belongs_to("web", "p").await;
    let replicas = || plane.binding("web-deployment").unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas(), 4);
    plane.change(&POLICIES, "p", |p| p["spec"]["priority"] = 1.into());
    until("unclaimed", || {
        plane.owners("web") == (Value::Null, Value::Null)
    })
    .await;
    assert_eq!(replicas(), 4, "bindings are left as they are");
    plane.belongs_to("later", "p").await;
    plane.tasks.stop().await;
}

// proves: DET-dependent-overrides-claimed
#[tokio::test(start_paused = true)]
async fn claimed_templates_wait_for_dependent_overrides_too() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, named("p", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "p").await;
    plane.change(&POLICIES, "p", |p| {
        p["spec"]["dependentOverrides"] = json!(["o"]);
        p["spec"]["conflictResolution"] = "Overwrite".into();
    });
    tokio::time::sleep(std::time::Duration::from_secs(100)).await;
    let resolution =
        || plane.binding("web-deployment").unwrap()["spec"]["conflictResolution"].clone();
    assert_eq!(resolution(), "Abort");
    plane.control.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": []}}),
    );
    until("the edit", || resolution() == "Overwrite").await;
    plane.tasks.stop().await;
}

// proves: DET-recreated
#[tokio::test]
async fn a_recreated_template_gets_a_new_binding() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, named("p", json!({})));
    let first = plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "p").await;
    plane.control.remove(&DEPLOYMENTS, "n", "web");
    let second = plane.control.seed(&DEPLOYMENTS, deployment("web"));
    assert_ne!(first.uid(), second.uid());
    let of = || plane.binding("web-deployment").unwrap_or_default();
    until("a binding of the second", || {
        of()["metadata"]["ownerReferences"][0]["uid"] == second.uid()
    })
    .await;
    assert_eq!(of()["spec"]["resource"]["uid"], second.uid());
    plane.applied("web").await;
    plane.tasks.stop().await;
}

// proves: DET-template-gone, FIN-binding, FIN-work
#[tokio::test]
async fn bindings_works_and_copies_are_deleted_with_their_template() {
    let mut plane = Plane::new();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control.seed(&CLUSTER_ROLES, role);
    let roles = json!({"resourceSelectors": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}]});
    plane
        .control
        .seed(&CLUSTER_POLICIES, of_cluster("c", roles));
    plane.control.seed(&POLICIES, named("p", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.start().await;
    plane.applied("web").await;
    let of_role = |at: usize| plane.members[at].object(&CLUSTER_ROLES, "", "r");
    until("the role", || of_role(0).is_some() && of_role(1).is_some()).await;
    let finalizers = |object: Option<Value>| object.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(
        finalizers(plane.binding("web-deployment")),
        json!(["karmada.io/binding-controller"])
    );
    let wide = plane.control.object(&CLUSTER_BINDINGS, "", "r-clusterrole");
    assert_eq!(
        finalizers(wide),
        json!(["karmada.io/cluster-resource-binding-controller"])
    );
    let expected = json!(["karmada.io/execution-controller"]);
    for work in plane.control.objects(&WORKS) {
        assert_eq!(work["metadata"]["finalizers"], expected);
    }
    plane.control.remove(&DEPLOYMENTS, "n", "web");
    plane.control.remove(&CLUSTER_ROLES, "", "r");
    until("all gone", || {
        let left = [&BINDINGS, &CLUSTER_BINDINGS, &WORKS];
        left.iter().all(|gvr| plane.control.objects(gvr).is_empty())
            && (0..2).all(|at| plane.in_member(at, "web").is_none() && of_role(at).is_none())
    })
    .await;
    plane.tasks.stop().await;
}

// proves: MBR-bookkeeping-wide
#[tokio::test]
async fn preserved_cluster_scoped_objects_lose_karmadas_labels_too() {
    let plane = Plane::new();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "r", "labels": {"own": "1"}}, "rules": []});
    plane.control.seed(&CLUSTER_ROLES, role);
    let preserved = json!({"preserveResourcesOnDeletion": true,
        "resourceSelectors": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}]});
    plane
        .control
        .seed(&CLUSTER_POLICIES, of_cluster("c", preserved));
    let plane = plane.started().await;
    let copy = |at: usize| plane.members[at].object(&CLUSTER_ROLES, "", "r");
    until("the copies", || copy(0).is_some() && copy(1).is_some()).await;
    let managed = &copy(0).unwrap()["metadata"]["labels"][labels::MANAGED];
    assert_eq!(managed, "true");
    plane.control.remove(&CLUSTER_ROLES, "", "r");
    until("works gone", || plane.control.objects(&WORKS).is_empty()).await;
    for at in 0..2 {
        let metadata = copy(at).unwrap()["metadata"].clone();
        assert_eq!(metadata["labels"], json!({"own": "1"}));
        assert_eq!(
            metadata["annotations"],
            json!({labels::CONFLICT_RESOLUTION: "abort"})
        );
    }
    plane.tasks.stop().await;
}

// proves: FIN-policy, DET-deleted-leaves
#[tokio::test]
async fn a_policy_is_deleted_when_no_object_carries_its_claim() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, policy(json!({})));
    plane
        .control
        .seed(&CLUSTER_POLICIES, of_cluster("c", json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    let mut elsewhere = deployment("far");
    elsewhere["metadata"]["namespace"] = "m".into();
    plane.control.seed(&DEPLOYMENTS, elsewhere);
    plane.belongs_to("web", "policy-id").await;
    let far = || plane.control.object(&DEPLOYMENTS, "m", "far").unwrap();
    let far_binding = || plane.control.object(&BINDINGS, "m", "far-deployment");
    until("the other claim", || far_binding().is_some()).await;
    let options = DeleteOptions::default();
    // The cluster policy goes first, so that it does not claim what the other policy releases.
    let at = At::one(&CLUSTER_POLICIES, "", "c");
    plane.control.delete(at, &options).await.unwrap();
    until("its end", || {
        plane.control.objects(&CLUSTER_POLICIES).is_empty()
    })
    .await;
    let marks = |object: &Value| object["metadata"]["labels"].clone();
    assert_eq!(marks(&far()), Value::Null);
    let left = far_binding().unwrap();
    assert_eq!(marks(&left)[labels::CLUSTER_POLICY_ID], Value::Null);
    assert_eq!(left["spec"]["clusters"].as_array().unwrap().len(), 2);
    let at = At::one(&POLICIES, "n", "p");
    plane.control.delete(at, &options).await.unwrap();
    until("the end of the other", || {
        plane.control.objects(&POLICIES).is_empty()
    })
    .await;
    assert_eq!(plane.owners("web"), (Value::Null, Value::Null));
    plane.tasks.stop().await;
}

/// Rejects the first calls with a conflict.
fn conflicts(plane: &Plane, verb: &'static str, resource: &'static Gvr, times: usize) {
    let done = AtomicUsize::new(0);
    plane.control.on_call(move |call| {
        let is_match = call.verb == verb && call.resource == Some(resource);
        let early = is_match && done.fetch_add(1, Ordering::Relaxed) < times;
        early.then(|| Status::stale(resource, call.name).into())
    });
}

// proves: DET-conflict
#[tokio::test]
async fn conflicts_are_retried() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, policy(json!({})));
    conflicts(&plane, "patch", &DEPLOYMENTS, 2);
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.belongs_to("web", "policy-id").await;
    conflicts(&plane, "update", &BINDINGS, 2);
    plane.change(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 7.into());
    until("the change", || {
        plane.binding("web-deployment").unwrap()["spec"]["replicas"] == 7
    })
    .await;
    conflicts(&plane, "patch", &DEPLOYMENTS, 2);
    let at = At::one(&POLICIES, "n", "p");
    let options = DeleteOptions::default();
    plane.control.delete(at, &options).await.unwrap();
    until("the policy's end", || {
        plane.control.objects(&POLICIES).is_empty()
    })
    .await;
    assert_eq!(plane.owners("web"), (Value::Null, Value::Null));
    plane.tasks.stop().await;
}

// proves: DET-preempt-skips
#[tokio::test]
async fn deleted_or_missing_templates_are_not_preempted() {
    let plane = Plane::new();
    let plane = plane
        .started_with(&[Gate::PropagationPolicyPreemption])
        .await;
    plane.control.seed(&POLICIES, named("low", json!({})));
    for name in ["web", "other"] {
        plane.control.seed(&DEPLOYMENTS, deployment(name));
        plane.belongs_to(name, "low").await;
    }
    plane.change(&DEPLOYMENTS, "web", |d| {
        d["metadata"]["finalizers"] = json!(["own"]);
        d["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    let mut high = preempting(2, &["m2"]);
    let all = ["web", "missing", "other"].map(|name| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name})
    });
    high["resourceSelectors"] = json!(all);
    plane.control.seed(&POLICIES, named("high", high));
    plane.belongs_to("other", "high").await;
    assert_eq!(plane.owners("web").0, "low");
    plane.tasks.stop().await;
}
