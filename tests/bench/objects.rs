//! The objects that the benchmarks create, and the paths of their resources.

use serde_json::{Value, json};

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const POLICIES: &str =
    "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
pub(crate) const BINDINGS: &str =
    "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
pub(crate) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A ConfigMap with `size` bytes of data.
pub(crate) fn configmap(name: &str, size: usize) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "bench" } },
        "data": { "text": "x".repeat(size) },
    })
    .to_string()
}

/// A Deployment of a usual size.
pub(crate) fn deployment(name: &str, replicas: u32) -> String {
    deployment_object(name, replicas, &json!([])).to_string()
}

/// The same, which takes its environment from the ConfigMap with its name.
pub(crate) fn deployment_with_config_map(name: &str) -> String {
    let from = json!([{ "configMapRef": { "name": name } }]);
    deployment_object(name, 1, &from).to_string()
}

fn deployment_object(name: &str, replicas: u32, env_from: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "main", "image": "nginx:1.25",
                    "ports": [{ "containerPort": 80 }],
                    "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
                    "env": [{ "name": "MODE", "value": "production" }],
                    "envFrom": env_from,
                }]},
            },
        },
    })
}

/// A policy that propagates every Deployment of the namespace to every cluster.
pub(crate) fn policy() -> String {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": "all", "namespace": "default" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment" }],
            "placement": { "replicaScheduling": { "replicaSchedulingType": "Duplicated" } },
        },
    })
    .to_string()
}
