//! Agents of clusters in pull mode: their users, the names that their clusters may have, what is
//! recorded of their registration, and their roles in the control plane. Pure.

use machinery::Gvr;
use machinery::agent_user::{RBAC_GENERATOR, agent_role_name, agent_user};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::{execution_space_name, impersonation_secret_name};

/// The namespace of the Secrets and the leases of agents.
pub const AGENT_SECRET_NAMESPACE: &str = "karmada-cluster";
/// The annotation of the Secret of a bootstrap token with the one cluster that it registers.
pub const TOKEN_CLUSTER: &str = "flotilla.io/cluster-name";
/// The annotation of the Secret of a used bootstrap token with the registration that it is worth: the
/// UID of the ClusterRole of the agent.
pub const TOKEN_REGISTRATION: &str = "flotilla.io/registration-uid";
/// The annotation of the certificate request and of the ClusterRole of an agent with its
/// [`AgentRegistration`].
pub const AGENT_REGISTRATION: &str = "flotilla.io/agent-registration";

/// The Services of the control plane itself, among them those of interpreter webhooks.
const CONTROL_PLANE_NAMESPACE: &str = "karmada-system";
const ELECTION_LEASE_PREFIX: &str = "karmada-agent-";
const INTERPRETER_CONFIGURATIONS: [&str; 2] = [
    "resourceinterpreterwebhookconfigurations",
    "resourceinterpretercustomizations",
];
const MAX_REGISTRATION_BYTES: usize = 16 << 10;

/// Whether the agent of a cluster of this name would have the user or the Secrets of somebody else.
pub fn is_reserved_cluster_name(name: &str) -> bool {
    agent_user(name) == RBAC_GENERATOR || name.ends_with(&impersonation_secret_name(""))
}

/// The Lease by which the agents of a cluster elect their leader.
pub fn agent_election_lease(cluster: &str) -> String {
    format!("{ELECTION_LEASE_PREFIX}{cluster}")
}

/// The claims that an agent may make about its Cluster, as it was registered.
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
        Some(machinery::json::from_str(text).map_err(|e| e.to_string()))
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

/// A request of an agent. Empty strings mean "none"; of lists and watches the name is the one that
/// the field selector requires.
#[derive(Clone, Copy, Debug)]
pub struct AgentAccess<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// The objects to which the server restricts a request of an agent, whatever its roles grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentScope {
    /// No restriction: the agent's roles decide.
    All,
    /// A list or watch without a selector is restricted by this field selector.
    Selected(String),
    Forbidden(String),
}

/// The scope of a request of a cluster's agent: its own Cluster, its own Leases, and the Services
/// of the control plane.
pub fn agent_scope(cluster: &str, access: &AgentAccess<'_>) -> AgentScope {
    let AgentAccess {
        verb,
        namespace,
        name,
        ..
    } = *access;
    let is_read_of_many = matches!(verb, "list" | "watch");
    match (access.group, access.resource) {
        ("cluster.karmada.io", "clusters") => match name {
            "" if verb == "create" => AgentScope::All,
            "" if is_read_of_many => AgentScope::Selected(format!("metadata.name={cluster}")),
            name if name == cluster => AgentScope::All,
            _ => forbidden(format!("the Cluster {cluster:?}")),
        },
        ("", "services") => match namespace {
            "" if is_read_of_many => {
                AgentScope::Selected(format!("metadata.namespace={CONTROL_PLANE_NAMESPACE}"))
            }
            CONTROL_PLANE_NAMESPACE => AgentScope::All,
            _ => forbidden(format!("the Services in {CONTROL_PLANE_NAMESPACE}")),
        },
        ("coordination.k8s.io", "leases") => {
            let is_own =
                name == cluster || name.strip_prefix(ELECTION_LEASE_PREFIX) == Some(cluster);
            match is_own || verb == "create" {
                true => AgentScope::All,
                false => forbidden("its own Leases".to_owned()),
            }
        }
        _ => AgentScope::All,
    }
}

fn forbidden(allowed: String) -> AgentScope {
    AgentScope::Forbidden(format!("an agent may only access {allowed}"))
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

/// The roles of the agent of a cluster and their bindings, in the order of their creation.
pub fn agent_rbac(cluster: &str, cluster_namespace: &str) -> Vec<AgentRbacObject> {
    rbac_objects(cluster, cluster_namespace, cluster_rules(cluster))
}

/// The same as `karmadactl register` creates them, for Karmada's agent: it lists all Clusters and
/// Services, of which the server shows it its own Cluster and the Services of the control plane.
pub fn karmadactl_agent_rbac(cluster: &str, cluster_namespace: &str) -> Vec<AgentRbacObject> {
    let mut rules = cluster_rules(cluster);
    rules.extend(karmadactl_rules());
    rbac_objects(cluster, cluster_namespace, rules)
}

fn rbac_objects(
    cluster: &str,
    cluster_namespace: &str,
    cluster_rules: Vec<Value>,
) -> Vec<AgentRbacObject> {
    let role_name = agent_role_name(cluster);
    let secrets = format!("system:karmada:{cluster}:agent-secret");
    let works = format!("system:karmada:{cluster}:agent-work");
    let space = execution_space_name(cluster);
    let mut objects = vec![
        role(&CLUSTER_ROLES, "", &role_name, cluster_rules),
        binding(&CLUSTER_ROLE_BINDINGS, "", &role_name, cluster),
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
    let (clusters, leases) = ("cluster.karmada.io", "coordination.k8s.io");
    let election = agent_election_lease(cluster);
    let namespaces = [
        AGENT_SECRET_NAMESPACE,
        &execution_space_name(cluster),
        // Its uid is the id of the control plane.
        "kube-system",
    ];
    vec![
        named(
            rule(clusters, &["clusters"], &["get", "list", "watch", "delete"]),
            &[cluster],
        ),
        rule(clusters, &["clusters"], &["create"]),
        named(
            rule(clusters, &["clusters/status"], &["update"]),
            &[cluster],
        ),
        rule(
            "config.karmada.io",
            &INTERPRETER_CONFIGURATIONS,
            &["get", "list", "watch"],
        ),
        named(rule("", &["namespaces"], &["get"]), &namespaces),
        named(
            rule(leases, &["leases"], &["get", "update"]),
            &[cluster, &election],
        ),
        rule(leases, &["leases"], &["create"]),
        rule(
            "certificates.k8s.io",
            &["certificatesigningrequests"],
            &["get", "create"],
        ),
        rule("", &["events"], &["patch", "create", "update"]),
    ]
}

/// The rules of Karmada's agent beside [`cluster_rules`].
fn karmadactl_rules() -> Vec<Value> {
    let reads = ["list", "watch"];
    vec![
        rule("cluster.karmada.io", &["clusters"], &reads),
        rule("", &["namespaces"], &["get"]),
        rule("coordination.k8s.io", &["leases"], &["get", "update"]),
        rule("", &["services"], &reads),
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

/// Karmada's verbs, and `patch`, with which Flotilla's agent removes finalizers.
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
    use machinery::agent_user::cluster_of_agent_role;

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
    }

    // proves: AGT-reads
    #[test]
    fn the_rights_of_an_agent_to_read_are_named_or_listed_here() {
        let reads = |rule: &Value| {
            let verbs = rule["verbs"].as_array().unwrap();
            let all = verbs.iter().filter_map(Value::as_str);
            all.filter(|verb| matches!(*verb, "get" | "list" | "watch" | "*"))
                .count()
                > 0
        };
        let mut wide_rules = Vec::new();
        for object in agent_rbac("edge", AGENT_SECRET_NAMESPACE) {
            // Roles have the scope of their namespace.
            let rules = object.body["rules"].as_array().cloned().unwrap_or_default();
            let in_space = object.namespace == execution_space_name("edge");
            let unnamed = rules
                .into_iter()
                .filter(|rule| rule["resourceNames"].is_null());
            wide_rules.extend(unnamed.filter(|rule| reads(rule) && !in_space));
        }
        let resources: Vec<&Value> = wide_rules.iter().map(|rule| &rule["resources"]).collect();
        let requests = json!(["certificatesigningrequests"]);
        assert_eq!(resources, [&json!(INTERPRETER_CONFIGURATIONS), &requests]);
    }

    // proves: AGT-reads
    #[test]
    fn an_agent_is_shown_its_own_objects() {
        let clusters = ("cluster.karmada.io", "clusters");
        let services = ("", "services");
        let leases = ("coordination.k8s.io", "leases");
        let own_cluster = "metadata.name=edge";
        let system = "metadata.namespace=karmada-system";
        for (verb, (group, resource), namespace, name, expected) in [
            ("get", clusters, "", "edge", "all"),
            ("get", clusters, "", "other", "forbidden"),
            ("update", clusters, "", "other", "forbidden"),
            ("list", clusters, "", "", own_cluster),
            ("watch", clusters, "", "", own_cluster),
            ("watch", clusters, "", "edge", "all"),
            ("list", clusters, "", "other", "forbidden"),
            ("create", clusters, "", "", "all"),
            ("deletecollection", clusters, "", "", "forbidden"),
            ("list", services, "", "", system),
            ("watch", services, "karmada-system", "", "all"),
            ("get", services, "default", "a", "forbidden"),
            ("list", services, "default", "", "forbidden"),
            ("get", leases, "karmada-cluster", "edge", "all"),
            ("get", leases, "other", "karmada-agent-edge", "all"),
            ("get", leases, "karmada-cluster", "other", "forbidden"),
            ("create", leases, "karmada-cluster", "", "all"),
            ("list", leases, "karmada-cluster", "", "forbidden"),
            ("get", ("", "secrets"), "default", "a", "all"),
        ] {
            let access = AgentAccess {
                verb,
                group,
                resource,
                namespace,
                name,
            };
            let scope = match agent_scope("edge", &access) {
                AgentScope::All => "all".to_owned(),
                AgentScope::Selected(selector) => selector,
                AgentScope::Forbidden(_) => "forbidden".to_owned(),
            };
            assert_eq!(scope, expected, "{verb} {resource} {namespace}/{name}");
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
        let registration = AgentRegistration::of_object(&annotated(&text));
        assert_eq!(registration, Some(Ok(registered.clone())));
        let cluster = json!({"spec": {"region": "r", "zones": []}});
        assert_eq!(AgentRegistration::of_cluster(&cluster), registered);
        for text in [
            "{",
            r#"{"labels": {}}"#,
            &"x".repeat(MAX_REGISTRATION_BYTES + 1),
        ] {
            let registration = AgentRegistration::of_object(&annotated(text));
            assert!(registration.unwrap().is_err());
        }
    }
}
