//! Agents of clusters in pull mode: their users, the names that their clusters may have, what is
//! recorded of their registration, and their roles in the control plane. Pure.

use machinery::Gvr;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::{agent_user, execution_space_name, impersonation_secret_name};

/// The group of all agents.
pub const AGENTS_GROUP: &str = "system:karmada:agents";
/// The user who creates the roles of agents for `karmadactl register`.
pub const RBAC_GENERATOR: &str = "system:karmada:agent:rbac-generator";
/// The namespace of the Secrets and the leases of agents.
pub const AGENT_SECRET_NAMESPACE: &str = "karmada-cluster";
/// The annotation of the Secret of a bootstrap token with the one cluster that it registers.
pub const TOKEN_CLUSTER: &str = "flotilla.io/cluster-name";
/// The annotation of the certificate request and of the ClusterRole of an agent with its
/// [`AgentRegistration`].
pub const AGENT_REGISTRATION: &str = "flotilla.io/agent-registration";

const AGENT_USER_PREFIX: &str = "system:karmada:agent:";
const ROLE_PREFIX: &str = "system:karmada:";
const MAX_REGISTRATION_BYTES: usize = 16 << 10;

/// The cluster of an agent, by its user.
pub fn cluster_of_agent(user: &str) -> Option<&str> {
    let cluster = user.strip_prefix(AGENT_USER_PREFIX)?;
    Some(cluster).filter(|cluster| !cluster.is_empty())
}

/// Whether the agent of a cluster of this name would have the user or the Secrets of somebody else.
pub fn is_reserved_cluster_name(name: &str) -> bool {
    agent_user(name) == RBAC_GENERATOR || name.ends_with(&impersonation_secret_name(""))
}

/// What an agent may say of its Cluster, as it was registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRegistration {
    pub provider: String,
    pub region: String,
    pub zones: Vec<String>,
}

impl AgentRegistration {
    /// The registration in the annotations of an object, if it has one.
    pub fn of_object(object: &Value) -> Option<Result<Self, String>> {
        let text = object["metadata"]["annotations"][AGENT_REGISTRATION].as_str()?;
        if text.len() > MAX_REGISTRATION_BYTES {
            return Some(Err(format!("has more than {MAX_REGISTRATION_BYTES} bytes")));
        }
        Some(serde_json::from_str(text).map_err(|e| e.to_string()))
    }

    /// The registration that the spec of a Cluster agrees with.
    pub fn of_cluster(cluster: &Value) -> Self {
        let spec = &cluster["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let zones = spec["zones"].as_array().into_iter().flatten();
        let zones = zones.filter_map(Value::as_str).map(str::to_owned);
        Self {
            provider: text("provider"),
            region: text("region"),
            zones: zones.collect(),
        }
    }
}

/// The ClusterRole of the agent of a cluster.
pub fn agent_role_name(cluster: &str) -> String {
    format!("{ROLE_PREFIX}{cluster}:agent")
}

/// The cluster for whose agent a role or binding of this name is.
pub fn cluster_of_agent_role(name: &str) -> Option<&str> {
    let (cluster, part) = name.strip_prefix(ROLE_PREFIX)?.split_once(':')?;
    matches!(part, "agent" | "agent-secret" | "agent-work").then_some(cluster)
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
static CLUSTER_ROLES: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "clusterroles");
static CLUSTER_ROLE_BINDINGS: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "clusterrolebindings");
static ROLES: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "roles");
static ROLE_BINDINGS: Gvr = Gvr::from_static(RBAC_GROUP, "v1", "rolebindings");

/// A role or binding; the namespace is empty for those of the cluster scope.
pub struct AgentRbacObject {
    pub resource: &'static Gvr,
    pub namespace: String,
    pub name: String,
    pub body: Value,
}

impl AgentRbacObject {
    /// As karmadactl prints it: `Role/namespace/name`.
    pub fn description(&self) -> String {
        let kind = self.body["kind"].as_str().unwrap_or_default();
        match self.namespace.as_str() {
            "" => format!("{kind}/{}", self.name),
            namespace => format!("{kind}/{namespace}/{}", self.name),
        }
    }
}

/// The roles of the agent of a cluster and their bindings, in the order of their creation.
pub fn agent_rbac(cluster: &str, cluster_namespace: &str) -> Vec<AgentRbacObject> {
    let wide = agent_role_name(cluster);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_those_of_others() {
        for (name, reserved) in [
            ("edge", false),
            ("rbac-generator", true),
            ("edge-impersonator", true),
            ("impersonator", false),
        ] {
            assert_eq!(is_reserved_cluster_name(name), reserved, "{name}");
        }
    }

    #[test]
    fn roles_name_their_cluster() {
        for object in agent_rbac("edge", AGENT_SECRET_NAMESPACE) {
            assert_eq!(cluster_of_agent_role(&object.name), Some("edge"));
        }
        for name in ["system:karmada:edge:admin", "system:karmada:edge", "edge"] {
            assert_eq!(cluster_of_agent_role(name), None, "{name}");
        }
    }

    #[test]
    fn registrations_are_bounded() {
        let annotated =
            |text: &str| json!({"metadata": {"annotations": {AGENT_REGISTRATION: text}}});
        assert_eq!(AgentRegistration::of_object(&json!({})), None);
        let registered = AgentRegistration {
            region: "r".into(),
            ..AgentRegistration::default()
        };
        let text = serde_json::to_string(&registered).unwrap();
        let found = AgentRegistration::of_object(&annotated(&text));
        assert_eq!(found, Some(Ok(registered.clone())));
        let cluster = json!({"spec": {"region": "r", "zones": []}});
        assert_eq!(AgentRegistration::of_cluster(&cluster), registered);
        for text in [
            "{",
            r#"{"labels": {}}"#,
            &"x".repeat(MAX_REGISTRATION_BYTES + 1),
        ] {
            let found = AgentRegistration::of_object(&annotated(text));
            assert!(found.unwrap().is_err());
        }
    }
}
