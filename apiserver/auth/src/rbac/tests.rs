//! Tests of RBAC decisions.

use machinery::Object;
use serde_json::json;

use super::policy::RbacKind;
use super::*;

fn object(value: serde_json::Value) -> Object {
    Object::from_value(&value).unwrap()
}

fn role(namespace: &str, name: &str, rules: serde_json::Value) -> Object {
    object(json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules}))
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: serde_json::Value) -> Object {
    object(json!({
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"kind": role.0, "name": role.1},
        "subjects": subjects,
    }))
}

fn sample() -> Arc<RbacAuthorizer> {
    let authorizer = RbacAuthorizer::new();
    {
        let mut p = authorizer.policy.write();
        let reader = json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/status"]},
            {"verbs": ["get"], "nonResourceURLs": ["/version", "/api*"]},
        ]);
        p.apply(RbacKind::ClusterRole, &role("", "reader", reader));
        let rules = json!([{"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"], "resourceNames": ["d"]}]);
        p.apply(RbacKind::Role, &role("ns", "one", rules));
        let group = json!([{"kind": "Group", "name": "staff"}]);
        p.apply(
            RbacKind::ClusterRoleBinding,
            &binding("", "staff", ("ClusterRole", "reader"), group),
        );
        let account = json!([{"kind": "ServiceAccount", "name": "bot"}]);
        p.apply(
            RbacKind::RoleBinding,
            &binding("ns", "bot", ("Role", "one"), account),
        );
        let absent = json!([{"kind": "User", "name": "eve"}]);
        p.apply(
            RbacKind::RoleBinding,
            &binding("ns", "eve", ("Role", "absent"), absent),
        );
    }
    authorizer
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: groups.iter().map(|g| (*g).into()).collect(),
        ..UserInfo::default()
    }
}

fn res<'a>(
    group: &'a str,
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> AuthorizationTarget<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    AuthorizationTarget::Resource {
        group,
        version: "v1",
        resource,
        subresource,
        namespace,
        name,
        selectors: AuthorizationSelectors::default(),
    }
}

#[test]
fn rbac_decisions_match_kubernetes() {
    let a = sample();
    let staff = user("ann", &["staff"]);
    let bot = user("system:serviceaccount:ns:bot", &[]);
    let master = user("root", &[SYSTEM_PRIVILEGED_GROUP]);
    let unknown_user = user("nobody", &[]);
    let table: &[(&UserInfo, &str, AuthorizationTarget<'_>, bool)] = &[
        (&staff, "get", res("", "pods", "any", "x"), true),
        (&staff, "list", res("", "pods", "", ""), true),
        (&staff, "delete", res("", "pods", "any", "x"), false),
        (&staff, "get", res("", "pods/log", "any", "x"), false),
        (&staff, "get", res("", "pods/status", "any", "x"), true),
        (&staff, "get", res("apps", "pods", "any", "x"), false),
        (
            &staff,
            "get",
            AuthorizationTarget::NonResource("/version"),
            true,
        ),
        (
            &staff,
            "get",
            AuthorizationTarget::NonResource("/apis/apps"),
            true,
        ),
        (
            &staff,
            "get",
            AuthorizationTarget::NonResource("/metrics"),
            false,
        ),
        (&bot, "update", res("apps", "deployments", "ns", "d"), true),
        (
            &bot,
            "update",
            res("apps", "deployments/scale", "ns", "d"),
            true,
        ),
        (&bot, "update", res("apps", "deployments", "ns", "e"), false),
        (&bot, "create", res("apps", "deployments", "ns", ""), false),
        (
            &bot,
            "update",
            res("apps", "deployments", "other", "d"),
            false,
        ),
        (
            &unknown_user,
            "get",
            AuthorizationTarget::NonResource("/readyz/ping"),
            true,
        ),
        (
            &unknown_user,
            "get",
            AuthorizationTarget::NonResource("/readyzz"),
            false,
        ),
        (&master, "anything", res("x", "y", "", ""), true),
    ];
    for (who, verb, target, expect) in table {
        assert_eq!(a.allows(who, verb, *target), *expect, "{verb} {target:?}");
        assert_eq!(a.explain(who, verb, *target).allowed, *expect);
    }
    assert_eq!(
        a.explain(&staff, "get", res("", "pods", "", "")).reason,
        "RBAC: allowed by ClusterRoleBinding \"staff\" of ClusterRole \"reader\" to Group \"staff\""
    );
    assert_eq!(
        a.explain(&user("eve", &[]), "get", res("", "pods", "ns", ""))
            .evaluation_error,
        "role.rbac.authorization.k8s.io \"absent\" not found"
    );
}

#[test]
fn deleted_objects_grant_nothing() {
    let a = sample();
    let staff = user("ann", &["staff"]);
    let may = || a.allows(&staff, "get", res("", "pods", "", ""));
    assert!(may());
    a.policy.write().replace(RbacKind::Role, &[]);
    assert!(may(), "cluster roles are another kind");
    a.policy.write().replace(RbacKind::ClusterRoleBinding, &[]);
    assert!(!may());
}

// proves: AGT-former
#[test]
fn certificates_of_an_earlier_registration_have_no_rights() {
    let authorizer = RbacAuthorizer::new();
    let agents = "system:karmada:agents";
    let agent = |name: &str, groups: &[&str], key: &str| UserInfo {
        extra: [("flotilla.io/public-key".to_owned(), vec![key.to_owned()])].into(),
        ..user(name, groups)
    };
    let role = |keys: serde_json::Value| {
        object(
            json!({"metadata": {"name": "system:karmada:edge:agent", "annotations": keys},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
        )
    };
    let everyone = json!([{"kind": "Group", "name": agents}, {"kind": "User", "name": "system:karmada:agent:edge"}]);
    let bound = binding(
        "",
        "edge",
        ("ClusterRole", "system:karmada:edge:agent"),
        everyone,
    );
    let write = |role: &Object| {
        let mut policy = authorizer.policy.write();
        policy.apply(RbacKind::ClusterRole, role);
        policy.apply(RbacKind::ClusterRoleBinding, &bound);
    };
    let allows = |user: &UserInfo| {
        let target = res("", "pods", "ns", "p");
        let allowed = authorizer.allows(user, "get", target);
        assert_eq!(authorizer.explain(user, "get", target).allowed, allowed);
        allowed
    };
    let edge = "system:karmada:agent:edge";
    let keys = json!({"flotilla.io/agent-public-keys": "SHA256=a,SHA256=b"});
    write(&role(keys));
    for (user, expected) in [
        (agent(edge, &[agents], "SHA256=a"), true),
        (agent(edge, &[agents], "SHA256=b"), true),
        (agent(edge, &[agents], "SHA256=c"), false),
        (agent(edge, &[], "SHA256=c"), true),
        (user(edge, &[agents]), true),
        (
            agent("system:karmada:agent:other", &[agents], "SHA256=c"),
            true,
        ),
    ] {
        assert_eq!(allows(&user), expected, "{user:?}");
    }
    // Registrations of an earlier release have no keys.
    write(&role(json!({})));
    assert!(allows(&agent(edge, &[agents], "SHA256=c")));
}

#[test]
fn forbidden_messages_match_kubernetes() {
    let who = user("ann", &[]);
    let text = |t| RbacAuthorizer::forbidden(&who, "get", t).message;
    assert_eq!(
        text(res("apps", "deployments/scale", "ns", "d")),
        "deployments.apps \"d\" is forbidden: User \"ann\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"ns\""
    );
    assert_eq!(
        text(res("", "nodes", "", "")),
        "nodes is forbidden: User \"ann\" cannot get resource \"nodes\" in API group \"\" at the cluster scope"
    );
    assert_eq!(
        text(AuthorizationTarget::NonResource("/metrics")),
        "forbidden: User \"ann\" cannot get path \"/metrics\""
    );
}

#[test]
fn subject_rules_are_listed() {
    let rules = sample().subject_rules(&user("ann", &["staff"]), "ns");
    assert_eq!(
        (rules.resource_rules.len(), rules.non_resource_rules.len()),
        (1, 1)
    );
    assert_eq!(
        sample()
            .subject_rules(&user("r", &[SYSTEM_PRIVILEGED_GROUP]), "ns")
            .resource_rules[0]
            .verbs,
        ["*"]
    );
}

/// The policy follows changes, also those that a broken and expired watch has missed.
#[tokio::test(start_paused = true)]
async fn policy_follows_the_api() {
    const ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
    const BINDINGS: Gvr =
        Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
    let api = client_fake::FakeApi::new();
    let reader = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let role = |rules| json!({"metadata": {"name": "reader"}, "rules": rules});
    api.seed(&ROLES, role(reader.clone()));
    let a = RbacAuthorizer::new();
    let watching = tokio::spawn(Arc::clone(&a).run(api.clone()));
    a.wait_synced().await;
    let staff = user("ann", &["staff"]);
    let settle = async |expect: bool| {
        for _ in 0..1000 {
            if a.allows(&staff, "get", res("", "pods", "", "")) == expect {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("never {expect}");
    };
    settle(false).await;
    let binding = json!({
        "metadata": {"name": "staff"},
        "roleRef": {"kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "Group", "name": "staff"}],
    });
    api.seed(&BINDINGS, binding);
    settle(true).await;
    api.seed(&ROLES, role(json!([])));
    settle(false).await;
    api.pause_watches(&ROLES);
    api.seed(&ROLES, role(reader));
    api.compact();
    api.end_watches();
    api.resume_watches(&ROLES);
    settle(true).await;
    api.remove(&BINDINGS, "", "staff");
    settle(false).await;
    watching.abort();
}
