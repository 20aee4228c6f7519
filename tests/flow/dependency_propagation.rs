//! Dependencies: the objects that a template refers to are propagated with it.

use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, wait_for_namespace};
use crate::flow::objects::{
    BINDINGS, CLUSTER_POLICIES, CONFIG_MAPS, DEPLOYMENTS, INGRESSES, SECRETS, SERVICE_ACCOUNTS,
    cluster_scoped, config_map, deployment, policy, secret,
};

/// A Deployment that refers to a ConfigMap, a Secret and a ServiceAccount.
fn deployment_with_dependencies(ns: &str, name: &str, map: &str) -> Value {
    let mut deployment_object = deployment(ns, name, 1);
    let pod = &mut deployment_object["spec"]["template"]["spec"];
    pod["serviceAccountName"] = json!("robot");
    pod["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": map}}, {"secretRef": {"name": "keys"}}]);
    deployment_object
}

fn propagating_dependencies(mut policy: Value) -> Value {
    policy["spec"]["propagateDeps"] = json!(true);
    policy
}

// proves: DEP-attached, DEP-comes-later, DEP-deleted, DEP-last-leaves
#[tokio::test]
async fn dependencies_follow_their_deployment() {
    let ns = "dependents";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let web = deployment_with_dependencies(ns, "web", "settings");
    control
        .create(propagating_dependencies(policy(
            ns,
            "web",
            &web,
            &["member1", "member2"],
        )))
        .await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": ns}});
    for object in [
        config_map(ns, "settings", "1"),
        secret(ns, "keys", "1"),
        account,
        web,
    ] {
        control.create(object).await;
    }
    for member in ["member1", "member2"] {
        let member = fleet.member(member);
        for (resource, name) in [
            (&CONFIG_MAPS, "settings"),
            (&SECRETS, "keys"),
            (&SERVICE_ACCOUNTS, "robot"),
            (&DEPLOYMENTS, "web"),
        ] {
            member.wait_until_exists(resource, ns, name).await;
        }
    }
    let attached = control
        .wait_until_exists(&BINDINGS, ns, "settings-configmap")
        .await;
    let independent = control
        .wait_until_exists(&BINDINGS, ns, "web-deployment")
        .await;
    let id = &independent["metadata"]["labels"]["resourcebinding.karmada.io/permanent-id"];
    let labels = attached["metadata"]["labels"].as_object().unwrap();
    let depended_by = |(key, value): (&String, &Value)| {
        key.starts_with("resourcebinding.karmada.io/depended-by-") && value == id
    };
    assert!(labels.iter().any(depended_by), "{labels:?}");
    assert_eq!(
        attached["spec"]["requiredBy"],
        json!([{"namespace": ns, "name": "web-deployment", "clusters": independent["spec"]["clusters"]}])
    );
    assert_eq!(attached["spec"]["conflictResolution"], "Abort");
    assert_eq!(attached["spec"]["preserveResourcesOnDeletion"], false);

    // A change of a dependency, a dependency created after its reference, and one that is no
    // longer referred to.
    control
        .merge_patch(&CONFIG_MAPS, ns, "settings", json!({"data": {"k": "2"}}))
        .await;
    let one = fleet.member("member1");
    one.wait_until(&CONFIG_MAPS, ns, "settings", "changed", |map| {
        map["data"]["k"] == "2"
    })
    .await;
    let env = json!([{"configMapRef": {"name": "later"}}]);
    let containers = json!([{"name": "c", "image": "nginx:1.27", "envFrom": env}]);
    control
        .merge_patch(
            &DEPLOYMENTS,
            ns,
            "web",
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
    for member in [one, fleet.member("member2")] {
        member
            .wait_until_deleted(&CONFIG_MAPS, ns, "settings")
            .await;
        member.wait_until_deleted(&SECRETS, ns, "keys").await;
    }
    control.create(config_map(ns, "later", "1")).await;
    one.wait_until_exists(&CONFIG_MAPS, ns, "later").await;
    let empty = |b: &Value| b["spec"]["requiredBy"].is_null();
    control
        .wait_until(
            &BINDINGS,
            ns,
            "settings-configmap",
            "required by no binding",
            empty,
        )
        .await;

    // A dependency that no binding requires stays on the control plane.
    control.delete(&DEPLOYMENTS, ns, "web").await;
    control
        .wait_until_deleted(&BINDINGS, ns, "web-deployment")
        .await;
    one.wait_until_deleted(&CONFIG_MAPS, ns, "later").await;
    one.wait_until_deleted(&SERVICE_ACCOUNTS, ns, "robot").await;
    control.get(&CONFIG_MAPS, ns, "later").await.unwrap();
}

// proves: DEP-shared, DEP-conflict-resolution
#[tokio::test]
async fn shared_dependency_is_in_the_clusters_of_all_its_deployments() {
    let ns = "shared-dependents";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    for (name, cluster) in [("one", "member1"), ("two", "member2")] {
        let object = deployment_with_dependencies(ns, name, "settings");
        let mut policy_object = propagating_dependencies(policy(ns, name, &object, &[cluster]));
        if name == "two" {
            policy_object["spec"]["conflictResolution"] = json!("Overwrite");
        }
        control.create(policy_object).await;
        control.create(object).await;
    }
    control.create(config_map(ns, "settings", "1")).await;
    for member in ["member1", "member2"] {
        fleet
            .member(member)
            .wait_until_exists(&CONFIG_MAPS, ns, "settings")
            .await;
    }
    let shared = |b: &Value| {
        b["spec"]["requiredBy"]
            .as_array()
            .is_some_and(|r| r.len() == 2)
            && b["spec"]["conflictResolution"] == "Overwrite"
    };
    control
        .wait_until(&BINDINGS, ns, "settings-configmap", "needed twice", shared)
        .await;
    control.delete(&DEPLOYMENTS, ns, "two").await;
    fleet
        .member("member2")
        .wait_until_deleted(&CONFIG_MAPS, ns, "settings")
        .await;
    let alone = |b: &Value| {
        let by = b["spec"]["requiredBy"].as_array();
        by.is_some_and(|r| r.len() == 1 && r[0]["name"] == "one-deployment")
            && b["spec"]["conflictResolution"] == "Abort"
    };
    control
        .wait_until(&BINDINGS, ns, "settings-configmap", "needed once", alone)
        .await;
    fleet
        .member("member1")
        .get(&CONFIG_MAPS, ns, "settings")
        .await
        .unwrap();
}

// proves: DEP-preserve, DEP-no-placement, DEP-switched-off
#[tokio::test]
async fn certificates_follow_an_ingress_of_a_cluster_policy() {
    let ns = "certificates";
    let fleet = FleetFixture::shared(ns).await;
    wait_for_namespace(&fleet, ns).await;
    let control = &fleet.control;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web", "namespace": ns},
        "spec": {"tls": [{"hosts": ["example.org"], "secretName": "cert"}], "defaultBackend": backend},
    });
    let mut wide = cluster_scoped(propagating_dependencies(policy(
        "",
        "flow-certificates",
        &ingress,
        &["member3"],
    )));
    wide["spec"]["resourceSelectors"][0]["namespace"] = json!(ns);
    wide["spec"]["preserveResourcesOnDeletion"] = json!(true);
    control.create(wide).await;
    control.create(secret(ns, "cert", "1")).await;
    control.create(ingress).await;
    let three = fleet.member("member3");
    three.wait_until_exists(&INGRESSES, ns, "web").await;
    three.wait_until_exists(&SECRETS, ns, "cert").await;
    let attached = control
        .wait_until_exists(&BINDINGS, ns, "cert-secret")
        .await;
    assert_eq!(attached["spec"]["preserveResourcesOnDeletion"], true);
    assert!(attached["spec"]["placement"].is_null());
    let labels = attached["metadata"]["labels"].as_object().unwrap();
    let claim = "clusterpropagationpolicy.karmada.io/permanent-id";
    assert!(!labels.contains_key(claim), "{labels:?}");

    // The policy stops propagating dependencies; then it is deleted, and the member keeps the
    // objects.
    control
        .merge_patch(
            &CLUSTER_POLICIES,
            "",
            "flow-certificates",
            json!({"spec": {"propagateDeps": false, "preserveResourcesOnDeletion": false}}),
        )
        .await;
    let is_detached = |b: &Value| {
        let finalizers = b["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|f| f.len() == 1) && b["spec"]["propagateDeps"].is_null()
    };
    control
        .wait_until(
            &BINDINGS,
            ns,
            "web-ingress",
            "without dependencies",
            is_detached,
        )
        .await;
    control
        .delete(&CLUSTER_POLICIES, "", "flow-certificates")
        .await;
    control
        .wait_until_deleted(&CLUSTER_POLICIES, "", "flow-certificates")
        .await;
    three.get(&INGRESSES, ns, "web").await.unwrap();
}
