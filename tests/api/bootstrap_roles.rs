//! Roles and bindings that a control plane begins with, and roles that aggregate others.

use serde_json::{Value, json};

use crate::api::access::RBAC;
use crate::api::test_server::ApiTestServer;

const VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";

/// Whether a user may do something, asked as that user.
fn can(server: &ApiTestServer, user: &str, namespace: &str, right: (&str, &str, &str)) -> bool {
    let (verb, group, resource) = right;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({"spec": {"resourceAttributes": {"namespace": namespace, "verb": verb,
        "group": group, "resource": resource, "subresource": subresource}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let reply = server.request_as(user, "POST", path).json(&review).send();
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()["status"]["allowed"] == true
}

fn bind(server: &ApiTestServer, namespace: &str, role: &str, user: &str) {
    let binding = json!({"metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}]});
    let reply = server.post(
        &format!("{RBAC}/namespaces/{namespace}/rolebindings"),
        &binding,
    );
    assert_eq!(reply.code, 201, "{}", reply.text());
}

/// Waits until a role has been filled with the rights of others.
fn wait_until_allowed(
    server: &ApiTestServer,
    user: &str,
    namespace: &str,
    right: (&str, &str, &str),
) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while !can(server, user, namespace, right) {
        assert!(
            std::time::Instant::now() < end,
            "{user} may never {right:?}"
        );
    }
}

#[test]
fn view_edit_and_admin_have_the_rights_of_kubernetes_and_karmada() {
    let server = ApiTestServer::shared();
    let namespace = "bootstrap-roles";
    server.create_namespace(namespace);
    for role in ["view", "edit", "admin"] {
        bind(&server, namespace, role, &format!("boot-{role}"));
    }
    let policies = "policy.karmada.io";
    let rights = [
        (("list", "", "pods"), [true, true, true]),
        (("get", "", "pods/log"), [true, true, true]),
        (("watch", "apps", "deployments"), [true, true, true]),
        (("get", policies, "propagationpolicies"), [true, true, true]),
        (
            ("list", "work.karmada.io", "resourcebindings/status"),
            [true, true, true],
        ),
        // Works contain Secrets, and are the administration of a member.
        (("list", "work.karmada.io", "works"), [false, false, false]),
        (("get", "", "secrets"), [false, true, true]),
        (("create", "apps", "deployments"), [false, true, true]),
        (("create", "", "serviceaccounts/token"), [false, true, true]),
        (("impersonate", "", "serviceaccounts"), [false, true, true]),
        (
            ("deletecollection", policies, "overridepolicies"),
            [false, true, true],
        ),
        (
            ("create", "rbac.authorization.k8s.io", "roles"),
            [false, false, true],
        ),
        (
            (
                "create",
                "authorization.k8s.io",
                "localsubjectaccessreviews",
            ),
            [false, false, true],
        ),
        (("update", "", "resourcequotas"), [false, false, false]),
        (("create", "", "nodes"), [false, false, false]),
        (
            ("bind", "rbac.authorization.k8s.io", "roles"),
            [false, false, false],
        ),
        (
            ("escalate", "rbac.authorization.k8s.io", "roles"),
            [false, false, false],
        ),
        (
            ("create", "cluster.karmada.io", "clusters"),
            [false, false, false],
        ),
        (("update", "", "pods/status"), [false, false, false]),
    ];
    for (i, role) in ["view", "edit", "admin"].into_iter().enumerate() {
        let user = format!("boot-{role}");
        for (right, allowed) in rights {
            if allowed[i] {
                wait_until_allowed(&server, &user, namespace, right);
            } else {
                assert!(!can(&server, &user, namespace, right), "{role} {right:?}");
            }
            assert!(
                !can(&server, &user, "default", right),
                "{role} {right:?} elsewhere"
            );
        }
    }
    // An administrator of a namespace hands on what the role has, and no more.
    let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    let binding = |role: &str| {
        json!({"metadata": {"name": format!("by-admin-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": role},
            "subjects": [{"kind": "User", "name": "other"}]})
    };
    for (role, code) in [("edit", 201), ("admin", 201), ("cluster-admin", 403)] {
        let request = server.request_as("boot-admin", "POST", &path);
        let reply = request.json(&binding(role)).send();
        assert_eq!(reply.code, code, "{role}: {}", reply.text());
    }
}

#[test]
fn rights_follow_the_roles_that_are_aggregated() {
    let server = ApiTestServer::start();
    server.create_namespace("sum");
    bind(&server, "sum", "view", "viewer");
    let roles = format!("{RBAC}/clusterroles");
    let mut widgets = json!({"metadata": {"name": "widgets", "labels": {VIEW: "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}]});
    let right = ("get", "example.com", "widgets");
    assert_eq!(server.post(&roles, &widgets).code, 201);
    wait_until_allowed(&server, "viewer", "sum", right);
    let admin = server.get(&format!("{roles}/admin"));
    // The roles of the sum are aggregated in turn.
    let names_widgets = |role: &Value| {
        let mut rules = role["rules"].as_array().unwrap().iter();
        rules.any(|rule| rule["apiGroups"] == json!(["example.com"]))
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(90);
    let mut stored = admin.json();
    while !names_widgets(&stored) {
        assert!(std::time::Instant::now() < end, "{stored}");
        stored = server.get(&format!("{roles}/admin")).json();
    }
    widgets["metadata"]["labels"] = json!({});
    let replaced = server
        .request("PUT", &format!("{roles}/widgets"))
        .json(&widgets)
        .send();
    assert_eq!(replaced.code, 200, "{}", replaced.text());
    while can(&server, "viewer", "sum", right) {
        assert!(
            std::time::Instant::now() < end,
            "the right is never taken back"
        );
    }
    // A rule that somebody writes into a sum is removed.
    let patch = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]});
    assert_eq!(
        server
            .merge_as("system:admin", &format!("{roles}/view"), &patch)
            .code,
        403
    );
    let request = server.request("PATCH", &format!("{roles}/view"));
    let body = patch.to_string();
    assert_eq!(
        request
            .body("application/merge-patch+json", body)
            .send()
            .code,
        200
    );
    while can(&server, "viewer", "sum", ("get", "", "secrets"))
        || !can(&server, "viewer", "sum", ("get", "", "pods"))
    {
        assert!(
            std::time::Instant::now() < end,
            "the rules are never restored"
        );
    }
}

#[test]
fn a_start_completes_the_bootstrap_policy() {
    let server = ApiTestServer::start();
    let path = |kind: &str, name: &str| format!("{RBAC}/{kind}/{name}");
    let patch = |path: &str, patch: Value| {
        let request = server.request("PATCH", path);
        let body = patch.to_string();
        let reply = request.body("application/merge-patch+json", body).send();
        assert_eq!(reply.code, 200, "{}", reply.text());
    };
    let own_rule = json!({"apiGroups": ["example.com"], "resources": ["own"], "verbs": ["get"]});
    patch(
        &path("clusterroles", "system:basic-user"),
        json!({"rules": [own_rule]}),
    );
    let manual = json!({"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}});
    let discovery = path("clusterroles", "system:discovery");
    patch(&discovery, json!({"metadata": manual, "rules": []}));
    let monitoring = path("clusterrolebindings", "system:monitoring");
    patch(
        &monitoring,
        json!({"subjects": [{"kind": "User", "name": "own"}]}),
    );
    let deleted = path("clusterroles", "system:auth-delegator");
    assert_eq!(server.request("DELETE", &deleted).send().code, 200);
    let issuer = path(
        "clusterrolebindings",
        "system:service-account-issuer-discovery",
    );
    assert_eq!(server.request("DELETE", &issuer).send().code, 200);
    let other = json!({"metadata": {"name": "system:service-account-issuer-discovery"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "own"}]});
    assert_eq!(
        server
            .post(&format!("{RBAC}/clusterrolebindings"), &other)
            .code,
        201
    );
    let unchanged = path("clusterroles", "cluster-admin");
    let version = server.get(&unchanged).json()["metadata"]["resourceVersion"].clone();
    let server = server.restart();
    let rules = server
        .get(&path("clusterroles", "system:basic-user"))
        .json()["rules"]
        .clone();
    assert_eq!(rules[0], own_rule);
    assert_eq!(rules.as_array().unwrap().len(), 4, "{rules}");
    let kept = server.get(&discovery).json();
    assert!(kept["rules"].as_array().is_none_or(Vec::is_empty), "{kept}");
    let subjects = server.get(&monitoring).json()["subjects"].clone();
    assert_eq!(subjects[0]["name"], "own");
    assert_eq!(subjects[1]["name"], "system:monitoring");
    assert_eq!(server.get(&deleted).code, 200);
    let role = server.get(&issuer).json()["roleRef"]["name"].clone();
    assert_eq!(role, "system:service-account-issuer-discovery");
    assert_eq!(
        server.get(&unchanged).json()["metadata"]["resourceVersion"],
        version
    );
    let reader =
        format!("{RBAC}/namespaces/kube-system/roles/extension-apiserver-authentication-reader");
    assert_eq!(server.get(&reader).code, 200);
}

#[test]
fn controllers_schedulers_and_nodes_have_the_roles_of_kubernetes() {
    let server = ApiTestServer::shared();
    let may = |user: &str, verb: &str, group: &str, resource: &str| {
        let review = json!({"spec": {"user": user, "resourceAttributes": {"namespace": "default",
            "verb": verb, "group": group, "resource": resource}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let reply = server.post(path, &review);
        assert_eq!(reply.code, 201, "{}", reply.text());
        reply.json()["status"]["allowed"] == true
    };
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let jobs = account("job-controller");
    assert!(may(&jobs, "create", "", "pods"));
    assert!(may(&jobs, "create", "events.k8s.io", "events"));
    assert!(!may(&jobs, "create", "", "secrets"));
    assert!(!may(
        &jobs.replace("kube-system", "default"),
        "create",
        "",
        "pods"
    ));
    assert!(may(
        &account("generic-garbage-collector"),
        "delete",
        "a.b",
        "c"
    ));
    assert!(may("system:kube-scheduler", "create", "", "bindings"));
    assert!(!may("system:kube-scheduler", "create", "", "pods"));
    assert!(may("system:kube-controller-manager", "watch", "a.b", "c"));
    assert!(may(&account("kube-dns"), "list", "", "services"));
    let get = |path: &str| {
        let reply = server.get(&format!("{RBAC}/{path}"));
        assert_eq!(reply.code, 200, "{path}: {}", reply.text());
        reply.json()
    };
    // Nodes are bound by whoever lets them in.
    let binding = get("clusterrolebindings/system:node");
    assert_eq!(binding["roleRef"]["name"], "system:node");
    assert_eq!(binding.get("subjects"), None);
    let name = "system::leader-locking-kube-scheduler";
    let role = get(&format!("namespaces/kube-system/roles/{name}"));
    assert_eq!(role["rules"][1]["resourceNames"], json!(["kube-scheduler"]));
    let label = "labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults";
    let roles = get(&format!("clusterroles?{label}"));
    let names = roles["items"].as_array().unwrap().iter();
    let names = names.filter_map(|role| role["metadata"]["name"].as_str());
    let controllers = names.filter(|name| name.starts_with("system:controller:"));
    assert_eq!(controllers.count(), 38);
}

/// The content of a role or binding, without the additions of a standalone server.
fn rbac_content(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!([
        metadata["namespace"],
        metadata["name"],
        object["rules"],
        object["roleRef"],
        object["subjects"]
    ])
}

// proves: PUL-host
#[test]
fn a_host_gets_the_roles_of_agents_that_a_standalone_server_has() {
    let server = ApiTestServer::shared();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../manifests/install/agents.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let documents = text.split("\n---\n");
    let objects: Vec<Value> = documents
        .map(|d| serde_saphyr::from_str(d).unwrap())
        .collect();
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        let is_of_agents = |name: &Value| name.as_str().unwrap().starts_with("system:karmada:");
        let of_kind = objects
            .iter()
            .filter(|o| o["kind"] == kind && is_of_agents(&o["metadata"]["name"]));
        let mut installed: Vec<Value> = of_kind.map(rbac_content).collect();
        let plural = format!("{}s", kind.to_lowercase());
        let selector = "labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults";
        let list = server.get(&format!("{RBAC}/{plural}?{selector}")).json();
        let all = list["items"].as_array().unwrap().iter();
        let agents = all.filter(|o| is_of_agents(&o["metadata"]["name"]));
        let mut standalone: Vec<Value> = agents.map(rbac_content).collect();
        for list in [&mut installed, &mut standalone] {
            list.sort_by_key(|content| content.to_string());
        }
        assert!(!installed.is_empty(), "{kind}");
        assert_eq!(installed, standalone, "{kind}");
    }
}
