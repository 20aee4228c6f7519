//! The objects that the load writes.

use machinery::Gvr;
use serde_json::{Value, json};

use crate::members::ROUND_LABEL;
use crate::sizes::{FleetSize, STAGES};

pub(crate) static CLUSTERS: Gvr = Gvr::from_static("cluster.karmada.io", "v1alpha1", "clusters");
pub(crate) static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");
pub(crate) static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
static POLICIES: Gvr = Gvr::from_static("policy.karmada.io", "v1alpha1", "propagationpolicies");
static OVERRIDES: Gvr = Gvr::from_static("policy.karmada.io", "v1alpha1", "overridepolicies");

/// The namespace of templates and policies.
pub(crate) const NAMESPACE: &str = "default";
/// The namespace of the credentials of clusters.
pub(crate) const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// The round of the templates of a size.
pub(crate) const LOAD_ROUND: &str = "load";
/// The group of clusters, and of templates that go to them.
const GROUP_LABEL: &str = "fleet-benchmark/group";
/// The stage of clusters.
pub(crate) const STAGE_LABEL: &str = "fleet-benchmark/stage";

/// An object to create.
pub(crate) struct LoadObject {
    pub(crate) resource: &'static Gvr,
    pub(crate) namespace: &'static str,
    pub(crate) object: Value,
}

impl LoadObject {
    pub(crate) fn in_namespace(resource: &'static Gvr, object: Value) -> Self {
        Self {
            resource,
            namespace: NAMESPACE,
            object,
        }
    }
}

fn group_name(group: usize) -> String {
    format!("group-{group:03}")
}

/// A Cluster and the Secret with its credentials, both values in base64.
pub(crate) fn registration(
    size: &FleetSize,
    cluster: usize,
    endpoint: &str,
    ca: &str,
    token: &str,
) -> Vec<LoadObject> {
    let name = size.cluster_name(cluster);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": CLUSTER_NAMESPACE},
        "data": {"token": token, "caBundle": ca},
    });
    let reference = json!({"namespace": CLUSTER_NAMESPACE, "name": name});
    let object = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {
            "name": name,
            "labels": {
                GROUP_LABEL: group_name(size.group_of(cluster)),
                STAGE_LABEL: STAGES[size.stage_of(cluster)],
            },
        },
        "spec": {
            "syncMode": "Push", "id": format!("benchmark-{name}"), "apiEndpoint": endpoint,
            "secretRef": reference,
        },
    });
    vec![
        LoadObject {
            resource: &SECRETS,
            namespace: CLUSTER_NAMESPACE,
            object: secret,
        },
        LoadObject {
            resource: &CLUSTERS,
            namespace: "",
            object,
        },
    ]
}

/// A Deployment of a usual size.
fn deployment(name: &str, round: &str, group: Option<usize>, has_config_map: bool) -> Value {
    let mut labels = json!({"app": name, ROUND_LABEL: round});
    if let Some(group) = group {
        labels[GROUP_LABEL] = group_name(group).into();
    }
    let env_from = match has_config_map {
        true => json!([{"configMapRef": {"name": name}}]),
        false => json!([]),
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "main", "image": "nginx:1.25",
                    "ports": [{"containerPort": 80}],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                    "env": [{"name": "MODE", "value": "production"}],
                    "envFrom": env_from,
                }]},
            },
        },
    })
}

/// A template of the load.
pub(crate) fn template(size: &FleetSize, template: usize) -> LoadObject {
    let name = size.template_name(template);
    let group = Some(size.group_of(template));
    let object = deployment(&name, LOAD_ROUND, group, size.has_own_policies);
    LoadObject::in_namespace(&DEPLOYMENTS, object)
}

/// A template that is no part of the load; it needs a policy of its own.
pub(crate) fn single_template(name: &str, round: &str) -> LoadObject {
    LoadObject::in_namespace(&DEPLOYMENTS, deployment(name, round, None, false))
}

/// A policy for the Deployment with its name.
pub(crate) fn own_policy(name: &str, group: usize) -> LoadObject {
    policy(name, &name_selector(name), group)
}

/// The policy of all templates of a group.
pub(crate) fn group_policy(group: usize) -> LoadObject {
    policy(&group_name(group), &group_selector(group), group)
}

/// Selects the templates of a group.
pub(crate) fn group_selector(group: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "labelSelector": {"matchLabels": {GROUP_LABEL: group_name(group)}},
    })
}

/// Selects the Deployment with a name.
pub(crate) fn name_selector(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

fn policy(name: &str, selector: &Value, group: usize) -> LoadObject {
    let object = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "propagateDeps": true,
            "resourceSelectors": [selector],
            "placement": {
                "clusterAffinity": {
                    "labelSelector": {"matchLabels": {GROUP_LABEL: group_name(group)}},
                },
            },
        },
    });
    LoadObject::in_namespace(&POLICIES, object)
}

/// The ConfigMap, the policy and the override policy of a template.
fn own_companions(size: &FleetSize, template: usize) -> Vec<LoadObject> {
    let name = size.template_name(template);
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {ROUND_LABEL: LOAD_ROUND}},
        "data": {"log.level": "info", "cache.size": "64Mi", "endpoint": format!("https://{name}.example.com")},
    });
    let override_policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            "overrideRules": [{"overriders": {"imageOverrider": [
                {"component": "Registry", "operator": "replace", "value": "registry.example.com"},
            ]}}],
        },
    });
    vec![
        LoadObject::in_namespace(&CONFIG_MAPS, config_map),
        own_policy(&name, size.group_of(template)),
        LoadObject::in_namespace(&OVERRIDES, override_policy),
    ]
}

/// A template with everything that belongs to it alone, in the order in which it is written.
pub(crate) fn template_with_companions(size: &FleetSize, number: usize) -> Vec<LoadObject> {
    let mut objects = match size.has_own_policies {
        true => own_companions(size, number),
        false => Vec::new(),
    };
    objects.push(template(size, number));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_go_to_the_clusters_of_their_group() {
        let size = FleetSize::find("smoke").unwrap();
        let cluster = registration(size, 3, "https://m", "", "").remove(1);
        let objects = template_with_companions(size, 5);
        let kinds: Vec<_> = objects.iter().map(|o| &o.object["kind"]).collect();
        let expected = [
            "ConfigMap",
            "PropagationPolicy",
            "OverridePolicy",
            "Deployment",
        ];
        assert_eq!(kinds, expected);
        let affinity = &objects[1].object["spec"]["placement"]["clusterAffinity"];
        let labels = &affinity["labelSelector"]["matchLabels"];
        let of_cluster = &cluster.object["metadata"]["labels"][GROUP_LABEL];
        assert_eq!(labels[GROUP_LABEL], *of_cluster);
        let own = objects[3].object["metadata"]["labels"][GROUP_LABEL].as_str();
        assert_eq!(own, Some("group-001"));
    }
}
