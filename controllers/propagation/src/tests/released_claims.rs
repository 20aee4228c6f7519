//! Tests of released claims, failed claims and recreated templates.

use std::sync::atomic::{AtomicUsize, Ordering};

use client::{Api, DeleteOptions, ResourcePath};
use karmada_api::KarmadaFeature;
use karmada_api::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, OVERRIDES, POLICIES, WORKS,
};
use karmada_api::well_known_keys;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use super::claims::{cluster_policy, policy_named, preempting_spec};
use super::{CLUSTER_ROLES, DEPLOYMENTS, PropagationFixture, deployment, policy, wait_until};

/// The claim of a policy whose name is also its id.
fn claim_metadata(policy: &str) -> Value {
    json!({
        "labels": {well_known_keys::POLICY_ID: policy},
        "annotations": {well_known_keys::POLICY_NAMESPACE: "n", well_known_keys::POLICY_NAME: policy},
    })
}

fn with_metadata(mut object: Value, marks: &Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.extend(marks.as_object().unwrap().clone());
    object
}

fn binding_for_template(template: &str, marks: &Value) -> Value {
    let binding = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{template}-deployment"), "namespace": "n"},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": template}}});
    with_metadata(binding, marks)
}

// proves: DET-policy-gone, DET-release-owner, DET-waiting
#[tokio::test]
async fn a_claim_of_a_missing_policy_is_released() {
    let plane = PropagationFixture::new();
    let missing = claim_metadata("gone");
    for name in ["web", "other"] {
        let template = with_metadata(deployment(name), &missing);
        plane.control_plane.seed(&DEPLOYMENTS, template);
    }
    plane
        .control_plane
        .seed(&BINDINGS, binding_for_template("web", &missing));
    let another = binding_for_template("other", &claim_metadata("another"));
    plane.control_plane.seed(&BINDINGS, another);
    let plane = plane.started().await;
    wait_until("unclaimed", || {
        plane.claiming_policies("web") == (Value::Null, Value::Null)
    })
    .await;
    let kept = || plane.claiming_policies("other") == (Value::Null, json!("another"));
    wait_until("the other's binding as it was", kept).await;
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["metadata"]["annotations"], Value::Null);
    // Released templates can be claimed by any new policy.
    plane
        .control_plane
        .seed(&POLICIES, policy_named("next", json!({})));
    plane.wait_until_claimed("web", "next").await;
    plane.wait_until_claimed("other", "next").await;
    plane.tasks.stop().await;
}

// proves: DET-unmatched-waits
#[tokio::test]
async fn a_template_that_no_longer_matches_is_released_when_its_policy_changes() {
    let plane = PropagationFixture::new().started().await;
    let labelled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"app": "x"}}});
    let selecting = json!({"resourceSelectors": [labelled]});
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", selecting));
    let fitting = |name: &str| with_metadata(deployment(name), &json!({"labels": {"app": "x"}}));
    plane.control_plane.seed(&DEPLOYMENTS, fitting("web"));
    plane.wait_until_claimed("web", "p").await;
    plane.edit(&DEPLOYMENTS, "web", |d| {
        d["metadata"]["labels"]["app"] = "y".into();
        d["spec"]["replicas"] = 7.into();
    });
    plane.control_plane.seed(&DEPLOYMENTS, fitting("later"));
    plane.wait_until_claimed("later", "p").await;
    plane.wait_until_claimed("web", "p").await;
    let replicas = || plane.binding("web-deployment").unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas(), 4);
    plane.edit(&POLICIES, "p", |p| p["spec"]["priority"] = 1.into());
    wait_until("unclaimed", || {
        plane.claiming_policies("web") == (Value::Null, Value::Null)
    })
    .await;
    assert_eq!(replicas(), 4, "bindings are left as they are");
    plane.wait_until_claimed("later", "p").await;
    plane.tasks.stop().await;
}

// proves: DET-dependent-overrides-claimed
#[tokio::test(start_paused = true)]
async fn claimed_templates_wait_for_dependent_overrides_too() {
    let plane = PropagationFixture::new().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "p").await;
    plane.edit(&POLICIES, "p", |p| {
        p["spec"]["dependentOverrides"] = json!(["o"]);
        p["spec"]["conflictResolution"] = "Overwrite".into();
    });
    tokio::time::sleep(std::time::Duration::from_secs(100)).await;
    let resolution =
        || plane.binding("web-deployment").unwrap()["spec"]["conflictResolution"].clone();
    assert_eq!(resolution(), "Abort");
    plane.control_plane.seed(
        &OVERRIDES,
        json!({"metadata": {"name": "o", "namespace": "n"}, "spec": {"overrideRules": []}}),
    );
    wait_until("the edit", || resolution() == "Overwrite").await;
    plane.tasks.stop().await;
}

// proves: DET-recreated
#[tokio::test]
async fn a_recreated_template_gets_a_new_binding() {
    let plane = PropagationFixture::new().started().await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", json!({})));
    let first = plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "p").await;
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    let second = plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    assert_ne!(first.uid(), second.uid());
    let of = || plane.binding("web-deployment").unwrap_or_default();
    wait_until("a binding of the second", || {
        of()["metadata"]["ownerReferences"][0]["uid"] == second.uid()
    })
    .await;
    assert_eq!(of()["spec"]["resource"]["uid"], second.uid());
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
}

// proves: DET-template-gone, FIN-binding, FIN-work
#[tokio::test]
async fn bindings_works_and_copies_are_deleted_with_their_template() {
    let mut plane = PropagationFixture::new();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    plane.control_plane.seed(&CLUSTER_ROLES, role);
    let roles = json!({"resourceSelectors": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}]});
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", roles));
    plane
        .control_plane
        .seed(&POLICIES, policy_named("p", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.start().await;
    plane.wait_until_applied("web").await;
    let of_role = |at: usize| plane.members[at].get_object(&CLUSTER_ROLES, "", "r");
    wait_until("the role", || of_role(0).is_some() && of_role(1).is_some()).await;
    let finalizers = |object: Option<Value>| object.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(
        finalizers(plane.binding("web-deployment")),
        json!(["karmada.io/binding-controller"])
    );
    let wide = plane
        .control_plane
        .get_object(&CLUSTER_BINDINGS, "", "r-clusterrole");
    assert_eq!(
        finalizers(wide),
        json!(["karmada.io/cluster-resource-binding-controller"])
    );
    let expected = json!(["karmada.io/execution-controller"]);
    for work in plane.control_plane.list_objects(&WORKS) {
        assert_eq!(work["metadata"]["finalizers"], expected);
    }
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    plane.control_plane.remove(&CLUSTER_ROLES, "", "r");
    wait_until("all gone", || {
        let left = [&BINDINGS, &CLUSTER_BINDINGS, &WORKS];
        left.iter()
            .all(|gvr| plane.control_plane.list_objects(gvr).is_empty())
            && (0..2)
                .all(|at| plane.deployment_in_member(at, "web").is_none() && of_role(at).is_none())
    })
    .await;
    plane.tasks.stop().await;
}

// proves: MBR-bookkeeping-wide
#[tokio::test]
async fn preserved_cluster_scoped_objects_lose_karmadas_labels_too() {
    let plane = PropagationFixture::new();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "r", "labels": {"own": "1"}}, "rules": []});
    plane.control_plane.seed(&CLUSTER_ROLES, role);
    let preserved = json!({"preserveResourcesOnDeletion": true,
        "resourceSelectors": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}]});
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", preserved));
    let plane = plane.started().await;
    let copy = |at: usize| plane.members[at].get_object(&CLUSTER_ROLES, "", "r");
    wait_until("the copies", || copy(0).is_some() && copy(1).is_some()).await;
    let managed = &copy(0).unwrap()["metadata"]["labels"][well_known_keys::MANAGED];
    assert_eq!(managed, "true");
    plane.control_plane.remove(&CLUSTER_ROLES, "", "r");
    wait_until("works gone", || {
        plane.control_plane.list_objects(&WORKS).is_empty()
    })
    .await;
    for at in 0..2 {
        let metadata = copy(at).unwrap()["metadata"].clone();
        assert_eq!(metadata["labels"], json!({"own": "1"}));
        assert_eq!(
            metadata["annotations"],
            json!({well_known_keys::CONFLICT_RESOLUTION: "abort"})
        );
    }
    plane.tasks.stop().await;
}

// proves: FIN-policy, DET-deleted-leaves
#[tokio::test]
async fn a_policy_is_deleted_when_no_object_carries_its_claim() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane
        .control_plane
        .seed(&CLUSTER_POLICIES, cluster_policy("c", json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let mut elsewhere = deployment("far");
    elsewhere["metadata"]["namespace"] = "m".into();
    plane.control_plane.seed(&DEPLOYMENTS, elsewhere);
    plane.wait_until_claimed("web", "policy-id").await;
    let far = || {
        plane
            .control_plane
            .get_object(&DEPLOYMENTS, "m", "far")
            .unwrap()
    };
    let far_binding = || {
        plane
            .control_plane
            .get_object(&BINDINGS, "m", "far-deployment")
    };
    wait_until("the other claim", || far_binding().is_some()).await;
    let options = DeleteOptions::default();
    // The cluster policy goes first, so that it does not claim what the other policy releases.
    let at = ResourcePath::object(&CLUSTER_POLICIES, "", "c");
    plane.control_plane.delete(at, &options).await.unwrap();
    wait_until("its end", || {
        plane
            .control_plane
            .list_objects(&CLUSTER_POLICIES)
            .is_empty()
    })
    .await;
    let marks = |object: &Value| object["metadata"]["labels"].clone();
    assert_eq!(marks(&far()), Value::Null);
    let left = far_binding().unwrap();
    assert_eq!(
        marks(&left)[well_known_keys::CLUSTER_POLICY_ID],
        Value::Null
    );
    assert_eq!(left["spec"]["clusters"].as_array().unwrap().len(), 2);
    let at = ResourcePath::object(&POLICIES, "n", "p");
    plane.control_plane.delete(at, &options).await.unwrap();
    wait_until("the end of the other", || {
        plane.control_plane.list_objects(&POLICIES).is_empty()
    })
    .await;
    assert_eq!(plane.claiming_policies("web"), (Value::Null, Value::Null));
    plane.tasks.stop().await;
}

/// Rejects the first calls with a conflict.
fn reject_with_conflicts(
    plane: &PropagationFixture,
    verb: &'static str,
    resource: &'static Gvr,
    times: usize,
) {
    let done = AtomicUsize::new(0);
    plane.control_plane.on_call(move |call| {
        let is_match = call.verb == verb && call.resource == Some(resource);
        let early = is_match && done.fetch_add(1, Ordering::Relaxed) < times;
        early.then(|| Status::stale_resource_version(resource, call.name).into())
    });
}

// proves: DET-conflict
#[tokio::test]
async fn conflicts_are_retried() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    reject_with_conflicts(&plane, "patch", &DEPLOYMENTS, 2);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_claimed("web", "policy-id").await;
    reject_with_conflicts(&plane, "update", &BINDINGS, 2);
    plane.edit(&DEPLOYMENTS, "web", |d| d["spec"]["replicas"] = 7.into());
    wait_until("the change", || {
        plane.binding("web-deployment").unwrap()["spec"]["replicas"] == 7
    })
    .await;
    reject_with_conflicts(&plane, "patch", &DEPLOYMENTS, 2);
    let at = ResourcePath::object(&POLICIES, "n", "p");
    let options = DeleteOptions::default();
    plane.control_plane.delete(at, &options).await.unwrap();
    wait_until("the policy's end", || {
        plane.control_plane.list_objects(&POLICIES).is_empty()
    })
    .await;
    assert_eq!(plane.claiming_policies("web"), (Value::Null, Value::Null));
    plane.tasks.stop().await;
}

// proves: DET-preempt-skips
#[tokio::test]
async fn deleted_or_missing_templates_are_not_preempted() {
    let plane = PropagationFixture::new();
    let plane = plane
        .started_with_gates(&[KarmadaFeature::PropagationPolicyPreemption])
        .await;
    plane
        .control_plane
        .seed(&POLICIES, policy_named("low", json!({})));
    for name in ["web", "other"] {
        plane.control_plane.seed(&DEPLOYMENTS, deployment(name));
        plane.wait_until_claimed(name, "low").await;
    }
    plane.edit(&DEPLOYMENTS, "web", |d| {
        d["metadata"]["finalizers"] = json!(["own"]);
        d["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    let mut high = preempting_spec(2, &["m2"]);
    let all = ["web", "missing", "other"].map(|name| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name})
    });
    high["resourceSelectors"] = json!(all);
    plane
        .control_plane
        .seed(&POLICIES, policy_named("high", high));
    plane.wait_until_claimed("other", "high").await;
    assert_eq!(plane.claiming_policies("web").0, "low");
    plane.tasks.stop().await;
}
