//! The roles of an agent in the control plane. Pure.

use machinery::Gvr;
use openapi::karmada::names::execution_space_name;
use serde_json::{Value, json};

use super::agent_user;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
static CLUSTER_ROLES: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "clusterroles");
static CLUSTER_ROLE_BINDINGS: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "clusterrolebindings");
static ROLES: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "roles");
static ROLE_BINDINGS: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "rolebindings");

/// A role or binding; the namespace is empty for those of the cluster scope.
pub(super) struct AgentRbacObject {
    pub(super) resource: &'static Gvr,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) body: Value,
}

impl AgentRbacObject {
    /// As karmadactl prints it: `Role/namespace/name`.
    pub(super) fn description(&self) -> String {
        let kind = self.body["kind"].as_str().unwrap_or_default();
        match self.namespace.as_str() {
            "" => format!("{kind}/{}", self.name),
            namespace => format!("{kind}/{namespace}/{}", self.name),
        }
    }
}

/// The roles of the agent of a cluster and their bindings, in the order of their creation.
pub(super) fn agent_rbac(cluster: &str, cluster_namespace: &str) -> Vec<AgentRbacObject> {
    let wide = format!("system:karmada:{cluster}:agent");
    let secrets = format!("system:karmada:{cluster}:agent-secret");
    let works = format!("system:karmada:{cluster}:agent-work");
    let space = execution_space_name(cluster);
    let mut objects = vec![
        role(&CLUSTER_ROLES, "", &wide, cluster_rules(cluster)),
        binding(&CLUSTER_ROLE_BINDINGS, "", &wide, cluster),
    ];
    for (namespace, name, rules) in [
        (cluster_namespace, &secrets, secret_rules(cluster)),
        (&space, &works, work_rules()),
    ] {
        objects.push(role(&ROLES, namespace, name, rules));
        objects.push(binding(&ROLE_BINDINGS, namespace, name, cluster));
    }
    objects
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named(mut rule: Value, names: &[&str]) -> Value {
    rule["resourceNames"] = json!(names);
    rule
}

fn cluster_rules(cluster: &str) -> Vec<Value> {
    let clusters = "cluster.karmada.io";
    vec![
        named(
            rule(clusters, &["clusters"], &["get", "delete"]),
            &[cluster],
        ),
        rule(clusters, &["clusters"], &["create", "list", "watch"]),
        named(
            rule(clusters, &["clusters/status"], &["update"]),
            &[cluster],
        ),
        rule(
            "config.karmada.io",
            &[
                "resourceinterpreterwebhookconfigurations",
                "resourceinterpretercustomizations",
            ],
            &["get", "list", "watch"],
        ),
        rule("", &["namespaces"], &["get"]),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "create", "update"],
        ),
        rule(
            "certificates.k8s.io",
            &["certificatesigningrequests"],
            &["get", "create"],
        ),
        rule("", &["services"], &["list", "watch"]),
        rule("", &["events"], &["patch", "create", "update"]),
    ]
}

fn secret_rules(cluster: &str) -> Vec<Value> {
    let impersonator = format!("{cluster}-impersonator");
    vec![
        named(
            rule("", &["secrets"], &["get", "patch"]),
            &[cluster, &impersonator],
        ),
        rule("", &["secrets"], &["create"]),
    ]
}

/// Those of Karmada, and `patch`, with which Flotilla's agent removes finalizers.
fn work_rules() -> Vec<Value> {
    let group = "work.karmada.io";
    let verbs = [
        "get", "create", "list", "watch", "update", "patch", "delete",
    ];
    vec![
        rule(group, &["works"], &verbs),
        rule(group, &["works/status"], &["patch", "update"]),
    ]
}

fn head(kind: &str, namespace: &str, name: &str) -> Value {
    let mut body = json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": kind,
        "metadata": {"name": name}});
    if !namespace.is_empty() {
        body["metadata"]["namespace"] = namespace.into();
    }
    body
}

fn role(resource: &'static Gvr, namespace: &str, name: &str, rules: Vec<Value>) -> AgentRbacObject {
    let kind = if namespace.is_empty() {
        "ClusterRole"
    } else {
        "Role"
    };
    let mut body = head(kind, namespace, name);
    body["rules"] = rules.into();
    AgentRbacObject {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        body,
    }
}

fn binding(resource: &'static Gvr, namespace: &str, name: &str, cluster: &str) -> AgentRbacObject {
    let role = if namespace.is_empty() {
        "ClusterRole"
    } else {
        "Role"
    };
    let mut body = head(&format!("{role}Binding"), namespace, name);
    body["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": role, "name": name});
    body["subjects"] =
        json!([{"apiGroup": RBAC_GROUP, "kind": "User", "name": agent_user(cluster)}]);
    AgentRbacObject {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        body,
    }
}
