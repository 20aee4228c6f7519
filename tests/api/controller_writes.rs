//! Controllers write as their own users, and nobody grants himself rights through them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::access::RBAC;
use crate::api::test_server::ApiTestServer;

const TIMEOUT: Duration = Duration::from_secs(90);
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

fn create(server: &ApiTestServer, path: &str, body: &Value) -> Value {
    let reply = server.post(path, body);
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()
}

/// A policy that changes the updates of one ClusterRole by the garbage collector.
fn mutate_role(server: &ApiTestServer, name: &str, patch: &str) {
    let rule = json!({"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"],
        "operations": ["UPDATE"], "resources": ["clusterroles"]});
    let conditions = [
        (
            "collector",
            format!("request.userInfo.username == '{COLLECTOR}'"),
        ),
        ("name", format!("object.metadata.name == '{name}'")),
    ];
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(name, expression)| json!({"name": name, "expression": expression}))
        .collect();
    let spec = json!({"reinvocationPolicy": "Never", "matchConditions": conditions,
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]});
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    create(
        server,
        &format!("{ADMISSION}/mutatingadmissionpolicies"),
        &policy,
    );
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    let bindings = format!("{ADMISSION}/mutatingadmissionpolicybindings");
    create(server, &bindings, &binding);
}

/// Creates a ClusterRole with one owner, which keeps it, and one that is gone, which the garbage
/// collector removes.
fn create_owned_role(server: &ApiTestServer, name: &str, owner: &Value) {
    let owners = json!([
        {"apiVersion": "v1", "kind": "Namespace", "name": "collected-owner",
            "uid": owner["metadata"]["uid"]},
        {"apiVersion": "v1", "kind": "Namespace", "name": "absent",
            "uid": "6c8a1d70-0000-4000-8000-000000000000"}]);
    let role = json!({"metadata": {"name": name, "ownerReferences": owners}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    create(server, &format!("{RBAC}/clusterroles"), &role);
}

fn wait_for_one_owner(server: &ApiTestServer, name: &str) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let role = server.get(&format!("{RBAC}/clusterroles/{name}")).json();
        if role["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1) {
            return role;
        }
        assert!(Instant::now() < end, "{role}");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

#[test]
fn a_policy_grants_nothing_through_the_garbage_collector() {
    let server = ApiTestServer::shared();
    server.create_namespace("collected-owner");
    let owner = server.get("/api/v1/namespaces/collected-owner").json();
    let by = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'by': request.userInfo.username}}]";
    mutate_role(&server, "collected-annotated", by);
    let add_rule = "[JSONPatch{op: 'add', path: '/rules/-', value: {'apiGroups': ['*'], 'resources': ['*'], 'verbs': ['*']}}]";
    mutate_role(&server, "collected-granting", add_rule);
    // The policies may take a moment to be in force: the collector is given new roles until the
    // harmless one, which came last, is.
    let end = Instant::now() + TIMEOUT;
    let annotated = loop {
        create_owned_role(&server, "collected-annotated", &owner);
        let role = wait_for_one_owner(&server, "collected-annotated");
        if role["metadata"]["annotations"]["by"] == COLLECTOR {
            break role;
        }
        assert!(Instant::now() < end, "{role}");
        let path = format!("{RBAC}/clusterroles/collected-annotated");
        assert_eq!(server.request("DELETE", &path).send().code, 200);
    };
    assert_eq!(annotated["rules"].as_array().map(Vec::len), Some(1));
    create_owned_role(&server, "collected-granting", &owner);
    create_owned_role(&server, "collected-plain", &owner);
    wait_for_one_owner(&server, "collected-plain");
    let path = format!("{ADMISSION}/mutatingadmissionpolicybindings/collected-granting");
    assert_eq!(server.request("DELETE", &path).send().code, 200);
    let role = wait_for_one_owner(&server, "collected-granting");
    assert_eq!(role["rules"].as_array().map(Vec::len), Some(1), "{role}");
}
