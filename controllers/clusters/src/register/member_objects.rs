//! The objects of the agent in the member. Pure.

use karmada_api::well_known_keys::SYSTEM;
use machinery::{Gvr, UserInfo};
use serde_json::{Value, json};

use super::register_spec::RegisterSpec;

pub(super) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");

/// The Deployment of the agent, and its ClusterRole in the member.
pub(super) const AGENT: &str = "karmada-agent";
pub(super) const AGENT_ACCOUNT: &str = "karmada-agent-sa";
/// The ClusterRole with which the fleet view reads the member through the agent's tunnel.
pub(super) const FLEET_CACHE: &str = "flotilla:fleet-cache";
/// The Secret with the agent's kubeconfig for the control plane, and its key.
pub(super) const KUBECONFIG_SECRET: &str = "karmada-kubeconfig";
const KUBECONFIG_DIR: &str = "/etc/kubeconfig";

fn labels() -> Value {
    json!({SYSTEM: "true"})
}

pub(super) fn kubeconfig_secret(namespace: &str, kubeconfig: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": KUBECONFIG_SECRET, "namespace": namespace, "labels": labels()},
        "stringData": {KUBECONFIG_SECRET: kubeconfig}})
}

pub(super) fn service_account(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": AGENT_ACCOUNT, "namespace": namespace, "labels": labels()}})
}

/// The rights of the agent in the member: all, since Works may hold any kind.
pub(super) fn cluster_role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": AGENT, "labels": labels()},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["get"]}]})
}

pub(super) fn cluster_role_binding(namespace: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": AGENT, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGENT},
        "subjects": [{"kind": "ServiceAccount", "name": AGENT_ACCOUNT, "namespace": namespace}]})
}

/// The rights of the control plane's controllers in the member, whom the agent impersonates for the cache
/// of the fleet view. Without `get` they cover no subresource.
pub(super) fn fleet_cache_role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": FLEET_CACHE, "labels": labels()},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}]})
}

pub(super) fn fleet_cache_role_binding() -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": FLEET_CACHE, "labels": labels()},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": FLEET_CACHE},
        "subjects": [{"kind": "User", "name": UserInfo::karmada_controllers().name, "apiGroup": group}]})
}

/// The Deployment of the agent. A new pod starts when the former has ended, so that two never
/// work at once.
pub(super) fn deployment(spec: &RegisterSpec) -> Value {
    let namespace = &spec.agent_namespace;
    let mut command = vec![
        "flotilla".to_owned(),
        "agent".to_owned(),
        format!("--karmada-kubeconfig={KUBECONFIG_DIR}/{KUBECONFIG_SECRET}"),
        format!("--cluster-name={}", spec.name),
        format!("--agent-namespace={namespace}"),
    ];
    command.extend(spec.deployment.flags.iter().cloned());
    let labels = json!({"app": AGENT});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
    "metadata": {"name": AGENT, "namespace": namespace, "labels": labels},
    "spec": {
        "replicas": spec.deployment.replicas,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "serviceAccountName": AGENT_ACCOUNT,
                "containers": [{
                    "name": AGENT, "image": spec.deployment.image, "command": command,
                    "volumeMounts": [{"name": "kubeconfig", "mountPath": KUBECONFIG_DIR}],
                }],
                "volumes": [{"name": "kubeconfig", "secret": {"secretName": KUBECONFIG_SECRET}}],
                "tolerations": [
                    {"key": "node-role.kubernetes.io/master", "operator": "Exists"},
                    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
                ],
            },
        },
    }})
}
