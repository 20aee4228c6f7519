//! Tests of what a policy and a binding may not touch: another object than the template, and the
//! Works of other bindings.

use karmada_api::resources::{BINDINGS, CLUSTER_OVERRIDES, OVERRIDES, WORKS};
use karmada_api::{names, well_known_keys};
use serde_json::{Value, json};

use super::{DEPLOYMENTS, PropagationFixture, SECRETS, deployment, wait_until};

const BINDING: &str = "web-deployment";

fn override_policy(namespace: &str, operation: Value) -> Value {
    let rules = json!([{"targetCluster": {"clusterNames": ["m1"]}, "overriders": {"plaintext": [operation]}}]);
    json!({"metadata": {"name": "o", "namespace": namespace}, "spec": {"overrideRules": rules}})
}

impl PropagationFixture {
    /// Waits for SyncWorkFailed on the binding with this text.
    async fn wait_for_refusal(&self, text: &str) {
        wait_until(text, || {
            let messages = self.event_messages("SyncWorkFailed");
            messages.iter().any(|message| message.contains(text))
        })
        .await;
    }
}

// proves: OVR-identity, OVR-failure
#[tokio::test]
async fn an_override_cannot_make_a_manifest_another_object() {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "admin"}, "roleRef": {}});
    let operations = [
        (
            json!({"path": "/kind", "operator": "replace", "value": "Secret"}),
            "/kind",
        ),
        (
            json!({"path": "/metadata/namespace", "operator": "replace", "value": "kube-system"}),
            "/metadata/namespace",
        ),
        (
            json!({"path": "/metadata", "operator": "replace", "value": {"name": "web"}}),
            "/metadata/namespace",
        ),
        (
            json!({"path": "", "operator": "replace", "value": role}),
            "/apiVersion",
        ),
    ];
    for (at, (operation, path)) in operations.into_iter().enumerate() {
        let plane = PropagationFixture::with_events();
        // Both scopes of policies go through the same check.
        let (resource, namespace, scope) = match at % 2 {
            0 => (&OVERRIDES, "n", "override policy(n/o)"),
            _ => (&CLUSTER_OVERRIDES, "", "cluster override policy(o)"),
        };
        plane
            .control_plane
            .seed(resource, override_policy(namespace, operation));
        let plane = plane.with_web_deployment().started().await;
        let field = "spec.overrideRules[0].overriders.plaintext[0]";
        plane
            .wait_for_refusal(&format!(
                "{scope} cannot be applied for cluster(m1): {field}: {path:?}: which object this is must not change"
            ))
            .await;
        wait_until("the other cluster", || {
            plane.deployment_in_member(1, "web").is_some()
        })
        .await;
        assert!(plane.members[0].writes().is_empty());
        plane.tasks.stop().await;
    }
}

// proves: BND-own-namespace
#[tokio::test]
async fn a_binding_propagates_nothing_of_another_namespace() {
    let plane = PropagationFixture::with_events();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "other"}});
    plane.control_plane.seed(&SECRETS, secret);
    let binding = json!({"metadata": {"name": "forged", "namespace": "n", "labels": {well_known_keys::BINDING_ID: "forged"}},
        "spec": {"resource": {"apiVersion": "v1", "kind": "Secret", "namespace": "other", "name": "s"},
            "clusters": [{"name": "m1"}]}});
    plane.control_plane.seed(&BINDINGS, binding);
    let plane = plane.with_web_deployment().started().await;
    plane.wait_until_applied("web").await;
    let name = names::work_name("Secret", "s", "other");
    assert_eq!(
        plane
            .control_plane
            .get_object(&WORKS, "karmada-es-m1", &name),
        None
    );
    plane.tasks.stop().await;
}

// proves: BND-own-works
#[tokio::test]
async fn a_binding_leaves_the_works_of_others_alone() {
    let plane = PropagationFixture::with_events();
    let foreign_work = |cluster: &str, labels: Value| {
        json!({"metadata": {"name": names::work_name("Deployment", "web", "n"),
            "namespace": format!("karmada-es-{cluster}"), "generation": 1, "labels": labels,
            "annotations": {well_known_keys::BINDING_NAMESPACE: "x", well_known_keys::BINDING_NAME: "y"}},
            "spec": {"workload": {"manifests": []}}})
    };
    let (another, none) = (
        foreign_work("m1", json!({well_known_keys::BINDING_ID: "another"})),
        foreign_work("m2", json!({})),
    );
    for work in [&another, &none] {
        plane.control_plane.seed(&WORKS, work.clone());
    }
    let plane = plane.with_web_deployment().started().await;
    for cluster in ["m1", "m2"] {
        let work = plane.work(cluster, "web").unwrap();
        let key = format!(
            "karmada-es-{cluster}/{}",
            work["metadata"]["name"].as_str().unwrap()
        );
        plane
            .wait_for_refusal(&format!(
                "work {key} exists and does not carry the permanent id of this binding"
            ))
            .await;
    }
    // A binding that carries the id of another one does not delete its Works either.
    let mut forged = plane.binding(BINDING).unwrap();
    forged["metadata"] = json!({"name": "forged", "namespace": "n", "generation": 1,
        "labels": {well_known_keys::BINDING_ID: "another"}});
    forged["spec"] = json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "solo"},
        "clusters": [{"name": "m2"}]});
    plane.control_plane.seed(&DEPLOYMENTS, deployment("solo"));
    plane.control_plane.seed(&BINDINGS, forged);
    wait_until("the forged binding's own", || {
        plane.work("m2", "solo").is_some()
    })
    .await;
    for (cluster, seeded) in [("m1", another), ("m2", none)] {
        assert_eq!(plane.work(cluster, "web").unwrap()["spec"], seeded["spec"]);
    }
    plane.tasks.stop().await;
}
