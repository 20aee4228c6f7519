//! The objects that the benchmarks create, and the paths of their resources.

use serde_json::{Value, json};

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const POLICIES: &str =
    "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
pub(crate) const BINDINGS: &str =
    "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
pub(crate) const FEDERATED_HPAS: &str =
    "/apis/autoscaling.karmada.io/v1alpha1/namespaces/default/federatedhpas";
pub(crate) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A ConfigMap with `size` bytes of data.
pub(crate) fn configmap(name: &str, size: usize) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "bench" } },
        "data": { "text": words(name, size) },
    })
    .to_string()
}

/// `size` bytes of words that follow from `seed`, which gzip makes about four times shorter.
fn words(seed: &str, size: usize) -> String {
    let words: Vec<_> = "address backend cache database endpoint false gateway host interval key \
                         limit metrics name origin port queue region secret timeout user value \
                         warning zone enabled 8080 0.5 30s https internal localhost max true"
        .split(' ')
        .collect();
    let mut state = seed.bytes().fold(1u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let mut text = String::with_capacity(size + 16);
    while text.len() < size {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(words[(state >> 16) as usize % words.len()]);
        text.push('.');
    }
    text.truncate(size);
    text
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
