//! The subresource `decision` of bindings, which explains a scheduling decision, and the
//! rights that it needs.

use client::{Error, ResourcePath, WriteOptions};
use machinery::{Gvr, Object, Status};
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition};
use crate::flow::objects::{BINDINGS, CLUSTER_BINDINGS, cluster_scoped, config_map, policy};

async fn get_decision(
    server: &ApiServerClient,
    resource: &Gvr,
    namespace: &str,
    name: &str,
) -> Result<Value, Box<Status>> {
    let at = ResourcePath::object(resource, namespace, name).subresource("decision");
    let response = server.api.get(at).await;
    response
        .map(|object| object.value().unwrap())
        .map_err(|error| match error {
            Error::Status(status) => status,
            other => Box::new(Status::internal(other)),
        })
}

fn is_scheduled(binding: &Value) -> bool {
    find_condition(binding, "Scheduled")["status"] == "True"
}

fn cluster_decision<'a>(decision: &'a Value, name: &str) -> &'a Value {
    let mut all = decision["clusters"].as_array().unwrap().iter();
    all.find(|row| row["name"] == name).unwrap()
}

// proves: DCN-content, DCN-recomputed
#[tokio::test]
async fn cluster_bindings_have_decisions_and_missing_ones_are_recomputed() {
    let ns = "decision-cluster";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ns}, "rules": []});
    let wide = cluster_scoped(policy("", ns, &role, &["member2"]));
    control.create(wide).await;
    control.create(role).await;
    let name = format!("{ns}-clusterrole");
    control
        .wait_until(&CLUSTER_BINDINGS, "", &name, "scheduled", is_scheduled)
        .await;
    let answer = get_decision(control, &CLUSTER_BINDINGS, "", &name)
        .await
        .unwrap();
    assert_eq!(
        (
            &answer["rule"],
            &cluster_decision(&answer, "member2")["chosen"]
        ),
        (&json!("Object"), &json!(true))
    );

    let object = config_map(ns, "c", "v");
    let mut other = policy(ns, "c", &object, &["member1"]);
    other["spec"]["schedulerName"] = "another".into();
    control.create(other).await;
    control.create(object).await;
    control
        .wait_until_exists(&BINDINGS, ns, "c-configmap")
        .await;
    let answer = get_decision(control, &BINDINGS, ns, "c-configmap")
        .await
        .unwrap();
    assert_eq!(answer["recomputed"], true);
    assert_eq!(cluster_decision(&answer, "member1")["chosen"], true);
}

// proves: DCN-rights
#[tokio::test]
async fn decisions_of_existing_bindings_are_served_to_authorized_users() {
    let ns = "decision-rights";
    let fleet = FleetFixture::shared(ns).await;
    let control = &fleet.control;
    let object = config_map(ns, "c", "v");
    control.create(policy(ns, "c", &object, &["member1"])).await;
    control.create(object).await;
    control
        .wait_until(&BINDINGS, ns, "c-configmap", "scheduled", is_scheduled)
        .await;

    let missing = get_decision(control, &BINDINGS, ns, "nothing")
        .await
        .unwrap_err();
    assert_eq!(missing.code, 404);
    assert_eq!(
        missing.message,
        "resourcebindings.work.karmada.io \"nothing\" not found"
    );
    let old = Gvr::from_static("work.karmada.io", "v1alpha1", "resourcebindings");
    let missing = get_decision(control, &old, ns, "c-configmap")
        .await
        .unwrap_err();
    assert_eq!(missing.code, 404);
    let at = ResourcePath::object(&BINDINGS, ns, "c-configmap").subresource("decision");
    let written = control
        .api
        .update(at, json!({}).into(), &WriteOptions::default())
        .await;
    assert_eq!(written.unwrap_err().status().unwrap().code, 405);

    let resources = control.api.discover().await.unwrap().resources;
    let bindings = |version: &str, plural: &str| {
        let is_it = |r: &&client::ApiResource| {
            *r.resource.resource == *plural && *r.resource.version == *version
        };
        resources
            .iter()
            .find(is_it)
            .is_some_and(|r| r.subresources.iter().any(|s| s == "decision"))
    };
    assert!(
        bindings("v1alpha2", "resourcebindings") && bindings("v1alpha2", "clusterresourcebindings")
    );

    let rules = json!([{"apiGroups": ["work.karmada.io"], "resources": ["resourcebindings/decision"], "verbs": ["get"]}]);
    control
        .create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "asker", "namespace": ns}, "rules": rules}))
        .await;
    let jane = ApiServerClient::connect("jane", &fleet.kubeconfig_as("jane", &[]));
    let rejection = get_decision(&jane, &BINDINGS, ns, "c-configmap")
        .await
        .unwrap_err();
    assert_eq!(rejection.code, 403);
    assert!(
        rejection
            .message
            .contains("cannot get resource \"resourcebindings/decision\""),
        "{}",
        rejection.message
    );
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asker"});
    let subjects =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]);
    control
        .create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "asker", "namespace": ns}, "roleRef": role, "subjects": subjects}))
        .await;
    crate::flow::fleet::wait_until("jane may ask", async || {
        get_decision(&jane, &BINDINGS, ns, "c-configmap")
            .await
            .is_ok()
    })
    .await;
    let binding: client::Result<Object> = jane
        .api
        .get(ResourcePath::object(&BINDINGS, ns, "c-configmap"))
        .await;
    assert_eq!(binding.unwrap_err().status().unwrap().code, 403);
}
