//! Writers of roles and bindings grant at most what they have, unless they have the verbs
//! `escalate` and `bind`.

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::access::{RBAC, wait_until_code};
use crate::api::test_server::ApiTestServer;

fn role(kind: &str, name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "rules": rules})
}

fn binding(kind: &str, name: &str, role: (&str, &str)) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": [{"kind": "User", "name": "somebody"}]})
}

fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
}

fn rbac_rule(resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": [resource],
        "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

const WRITE: [&str; 4] = ["get", "create", "update", "patch"];

/// The requests of one user of the shared server.
struct User<'a> {
    server: &'a ApiTestServer,
    name: &'a str,
}

impl User<'_> {
    fn post(&self, path: &str, body: &Value) -> RawHttpResponse {
        self.server
            .request_as(self.name, "POST", path)
            .json(body)
            .send()
    }

    fn put(&self, path: &str, body: &Value) -> RawHttpResponse {
        self.server
            .request_as(self.name, "PUT", path)
            .json(body)
            .send()
    }

    fn merge(&self, path: &str, patch: &Value) -> RawHttpResponse {
        self.server.merge_as(self.name, path, patch)
    }
}

fn assert_code(code: u16, reply: &RawHttpResponse) {
    assert_eq!(reply.code, code, "{}", reply.text());
}

/// Asserts a 403 with the complete message.
fn assert_escalation(reply: &RawHttpResponse, object: &str, user: &str, missing: &[&str]) {
    assert_code(403, reply);
    let expected = format!(
        "{object} is forbidden: user {user:?} (groups=[\"system:authenticated\"]) is attempting \
         to grant RBAC permissions not currently held:\n{}",
        missing.join("\n")
    );
    assert_eq!(reply.json()["message"], expected);
    assert_eq!(reply.json()["reason"], "Forbidden");
}

#[test]
fn a_role_holds_at_most_what_its_writer_has() {
    let server = ApiTestServer::shared();
    server.create_namespace("escalation-role");
    let roles = format!("{RBAC}/namespaces/escalation-role/roles");
    let user = User {
        server: &server,
        name: "role-writer",
    };
    for (name, rule) in [
        ("role-writer", rbac_rule("roles", &[], &WRITE)),
        ("role-writer-reads", rule("configmaps", &["get", "list"])),
    ] {
        server.grant(user.name, name, Some("escalation-role"), &rule);
    }
    let allowed = role("Role", "fits", &json!([rule("configmaps", &["get"])]));
    wait_until_code(201, || user.post(&roles, &allowed));
    let more = json!([
        rule("configmaps", &["get", "delete"]),
        rule("secrets", &["get", "list"])
    ]);
    let missing = [
        r#"{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}"#,
        r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#,
    ];
    let rejected = user.post(&roles, &role("Role", "more", &more));
    let named = r#"roles.rbac.authorization.k8s.io "more""#;
    assert_escalation(&rejected, named, user.name, &missing);
    assert_code(404, &server.get(&format!("{roles}/more")));
    let fits = format!("{roles}/fits");
    let named = r#"roles.rbac.authorization.k8s.io "fits""#;
    let rejected = user.merge(&fits, &json!({"rules": more}));
    assert_escalation(&rejected, named, user.name, &missing);
    let rejected = user.put(&fits, &role("Role", "fits", &more));
    assert_escalation(&rejected, named, user.name, &missing);
    let dry_run = user.merge(&format!("{fits}?dryRun=All"), &json!({"rules": more}));
    assert_code(403, &dry_run);
    // The rights of one namespace are not those of another or of the cluster.
    server.create_namespace("escalation-role-other");
    let rule_of_roles = rbac_rule("roles", &[], &WRITE);
    server.grant(
        user.name,
        "role-writer",
        Some("escalation-role-other"),
        &rule_of_roles,
    );
    let other = format!("{RBAC}/namespaces/escalation-role-other/roles");
    let plain = role("Role", "plain", &json!([rbac_rule("roles", &[], &["get"])]));
    wait_until_code(201, || user.post(&other, &plain));
    assert_code(403, &user.post(&other, &allowed));
    assert_eq!(server.get(&fits).json()["rules"], allowed["rules"]);
}

#[test]
fn updates_that_grant_nothing_new_are_not_checked() {
    let server = ApiTestServer::shared();
    server.create_namespace("escalation-same");
    let roles = format!("{RBAC}/namespaces/escalation-same/roles");
    let user = User {
        server: &server,
        name: "same-writer",
    };
    let strong = role("Role", "strong", &json!([rule("secrets", &["*"])]));
    assert_code(201, &server.post(&roles, &strong));
    let rule_of_roles = rbac_rule("roles", &[], &WRITE);
    server.grant(
        user.name,
        "same-writer",
        Some("escalation-same"),
        &rule_of_roles,
    );
    let strong = format!("{roles}/strong");
    let stored = server.get(&strong).json();
    let namespace = server.get("/api/v1/namespaces/escalation-same").json();
    wait_until_code(200, || user.put(&strong, &stored));
    for metadata in [
        json!({"finalizers": ["example.com/hold"]}),
        json!({"finalizers": null}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace",
            "name": "escalation-same", "uid": namespace["metadata"]["uid"]}]}),
    ] {
        assert_code(200, &user.merge(&strong, &json!({"metadata": metadata})));
    }
    assert_code(
        403,
        &user.merge(&strong, &json!({"metadata": {"labels": {"a": "b"}}})),
    );
    assert_code(
        403,
        &user.merge(&strong, &json!({"rules": [rule("secrets", &["get"])]})),
    );
    assert_code(200, &user.merge(&strong, &json!({"rules": []})));
}

#[test]
fn the_verb_escalate_permits_any_rules() {
    let server = ApiTestServer::shared();
    let user = User {
        server: &server,
        name: "escalator",
    };
    let roles = format!("{RBAC}/clusterroles");
    server.grant(
        user.name,
        "escalator",
        None,
        &rbac_rule("clusterroles", &[], &WRITE),
    );
    let named = rbac_rule("clusterroles", &["escalated"], &["escalate"]);
    server.grant(user.name, "escalator-named", None, &named);
    let all = json!([rule("*", &["*"])]);
    let escalated = role("ClusterRole", "escalated", &json!([]));
    wait_until_code(201, || user.post(&roles, &escalated));
    let changed = wait_until_code(200, || {
        user.merge(&format!("{roles}/escalated"), &json!({"rules": all}))
    });
    assert_eq!(changed.json()["rules"], all);
    // A creation has no name that the right could match.
    assert_code(
        403,
        &user.post(&roles, &role("ClusterRole", "escalated-too", &all)),
    );
    server.grant(
        user.name,
        "escalator-all",
        None,
        &rbac_rule("clusterroles", &[], &["escalate"]),
    );
    wait_until_code(201, || {
        user.post(&roles, &role("ClusterRole", "escalated-too", &all))
    });
}

#[test]
fn a_binding_grants_at_most_what_its_writer_has() {
    let server = ApiTestServer::shared();
    server.create_namespace("escalation-binding");
    let user = User {
        server: &server,
        name: "binder",
    };
    let bindings = format!("{RBAC}/namespaces/escalation-binding/rolebindings");
    let weak = role(
        "ClusterRole",
        "binder-weak",
        &json!([rule("configmaps", &["get"])]),
    );
    let strong = role(
        "ClusterRole",
        "binder-strong",
        &json!([rule("secrets", &["get"])]),
    );
    for role in [&weak, &strong] {
        assert_code(201, &server.post(&format!("{RBAC}/clusterroles"), role));
    }
    for (name, rule) in [
        ("binder", rbac_rule("rolebindings", &[], &WRITE)),
        ("binder-reads", rule("configmaps", &["get"])),
    ] {
        server.grant(user.name, name, Some("escalation-binding"), &rule);
    }
    let of_weak = binding("RoleBinding", "weak", ("ClusterRole", "binder-weak"));
    wait_until_code(201, || user.post(&bindings, &of_weak));
    let of_strong = binding("RoleBinding", "strong", ("ClusterRole", "binder-strong"));
    let rejected = user.post(&bindings, &of_strong);
    let missing = [r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#];
    let named = r#"rolebindings.rbac.authorization.k8s.io "strong""#;
    assert_escalation(&rejected, named, user.name, &missing);
    let absent = user.post(&bindings, &binding("RoleBinding", "x", ("Role", "absent")));
    assert_code(404, &absent);
    let message = r#"roles.rbac.authorization.k8s.io "absent" not found"#;
    assert_eq!(absent.json()["message"], message);
    let unknown = user.post(&bindings, &binding("RoleBinding", "x", ("Rule", "absent")));
    assert_code(422, &unknown);
    // Nor does an update bind others to a role that the writer may not bind.
    assert_code(201, &server.post(&bindings, &of_strong));
    let subjects = json!({"subjects": [{"kind": "User", "name": user.name}]});
    assert_code(403, &user.merge(&format!("{bindings}/strong"), &subjects));
    assert_code(200, &user.merge(&format!("{bindings}/weak"), &subjects));
    let stored = server.get(&format!("{bindings}/strong")).json();
    assert_code(200, &user.put(&format!("{bindings}/strong"), &stored));
}

#[test]
fn the_verb_bind_permits_binding_a_role_where_it_is_granted() {
    let server = ApiTestServer::shared();
    let user = User {
        server: &server,
        name: "bind-user",
    };
    let strong = role(
        "ClusterRole",
        "bind-strong",
        &json!([rule("secrets", &["get"])]),
    );
    assert_code(201, &server.post(&format!("{RBAC}/clusterroles"), &strong));
    for namespace in ["escalation-bind", "escalation-bind-other"] {
        server.create_namespace(namespace);
        let writes = rbac_rule("rolebindings", &[], &WRITE);
        server.grant(user.name, "bind-writes", Some(namespace), &writes);
    }
    let writes = rbac_rule("clusterrolebindings", &[], &WRITE);
    server.grant(user.name, "bind-writes", None, &writes);
    let binds = rbac_rule("clusterroles", &["bind-strong"], &["bind"]);
    server.grant(
        user.name,
        "bind-strong-right",
        Some("escalation-bind"),
        &binds,
    );
    let reference = ("ClusterRole", "bind-strong");
    let bind_in = |namespace: &str| {
        let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
        user.post(&path, &binding("RoleBinding", "strong", reference))
    };
    wait_until_code(201, || bind_in("escalation-bind"));
    let cluster_wide = || {
        let body = binding("ClusterRoleBinding", "bind-strong-all", reference);
        user.post(&format!("{RBAC}/clusterrolebindings"), &body)
    };
    for reply in [bind_in("escalation-bind-other"), cluster_wide()] {
        assert_code(403, &reply);
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("not currently held") || message.contains("cannot create"));
    }
    server.grant(user.name, "bind-strong-anywhere", None, &binds);
    wait_until_code(201, cluster_wide);
}

#[test]
fn an_aggregation_rule_requires_all_rights() {
    let server = ApiTestServer::shared();
    let user = User {
        server: &server,
        name: "aggregator",
    };
    let roles = format!("{RBAC}/clusterroles");
    server.grant(
        user.name,
        "aggregator",
        None,
        &rbac_rule("clusterroles", &[], &WRITE),
    );
    let mut gathered = role("ClusterRole", "aggregator-gathers", &json!([]));
    wait_until_code(201, || {
        user.post(&roles, &role("ClusterRole", "aggregator-plain", &json!([])))
    });
    gathered["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {"aggregator": "yes"}}]});
    let rejected = user.post(&roles, &gathered);
    assert_code(403, &rejected);
    let message = "clusterroles.rbac.authorization.k8s.io \"aggregator-gathers\" is forbidden: \
                   must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(rejected.json()["message"], message);
    let rule = json!({"aggregationRule": gathered["aggregationRule"]});
    assert_code(
        403,
        &user.merge(&format!("{roles}/aggregator-plain"), &rule),
    );
    assert_code(201, &server.post(&roles, &gathered));
    let removed = json!({"aggregationRule": null});
    assert_code(
        403,
        &user.merge(&format!("{roles}/aggregator-gathers"), &removed),
    );
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    server.grant(user.name, "aggregator-resources", None, &everything);
    let urls = json!({"nonResourceURLs": ["*"], "verbs": ["*"]});
    server.grant(user.name, "aggregator-urls", None, &urls);
    wait_until_code(200, || {
        user.merge(&format!("{roles}/aggregator-gathers"), &removed)
    });
}
