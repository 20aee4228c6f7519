//! Builds the ClusterProfile of a Cluster. Pure.

use karmada_api::Cluster;
use machinery::time;
use serde_json::{Value, json};

use crate::address::ControlPlaneAddress;

/// The name of this cluster manager, and of its access provider.
pub(crate) const MANAGER: &str = "flotilla";
/// The label with the name of the cluster manager.
pub(crate) const MANAGER_LABEL: &str = "x-k8s.io/cluster-manager";
pub(crate) const API_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";
pub(crate) const KIND: &str = "ClusterProfile";

/// The extension of which clients give the content to their exec plug-in.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";
/// The most resources of a cluster that are listed: its nodes name them.
const MAX_RESOURCES: usize = 32;
/// The longest name and value of a property, by the schema.
const MAX_PROPERTY_NAME_BYTES: usize = 253;
const MAX_PROPERTY_VALUE_BYTES: usize = 1024;
/// The longest message that is passed on, in characters.
const MAX_MESSAGE_CHARS: usize = 1024;

/// The metadata and the spec of the profile, without its name and namespace.
pub(crate) fn desired_profile(cluster: &str, uid: &str) -> Value {
    json!({
        "metadata": {
            "labels": {MANAGER_LABEL: MANAGER},
            "ownerReferences": [{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "name": cluster, "uid": uid}],
        },
        "spec": {"displayName": cluster, "clusterManager": {"name": MANAGER}},
    })
}

/// The merge patch that gives an existing profile the desired fields; `None` if it has them.
pub(crate) fn profile_patch(profile: &Value, desired: &Value) -> Option<Value> {
    let label = &profile["metadata"]["labels"][MANAGER_LABEL];
    let owner = &desired["metadata"]["ownerReferences"][0];
    let owners = profile["metadata"]["ownerReferences"].as_array();
    let is_same = label == MANAGER
        && owners.is_some_and(|owners| owners.contains(owner))
        && profile["spec"] == desired["spec"];
    (!is_same).then(|| {
        let mut patch = desired.clone();
        patch["metadata"]["resourceVersion"] = profile["metadata"]["resourceVersion"].clone();
        patch
    })
}

/// Whether this cluster manager keeps a profile.
pub(crate) fn is_own(profile: &Value) -> bool {
    profile["spec"]["clusterManager"]["name"] == MANAGER
}

/// The status of the profile. `created` is when the Cluster was created.
pub(crate) fn desired_status(
    name: &str,
    created: &str,
    cluster: &Cluster,
    control_plane: Option<&ControlPlaneAddress>,
) -> Value {
    let mut status = json!({"conditions": [control_plane_healthy(created, cluster)]});
    let version = &cluster.status.kubernetes_version;
    if !version.is_empty() {
        status["version"] = json!({"kubernetes": version});
    }
    let properties = properties(cluster);
    if !properties.is_empty() {
        status["properties"] = properties.into();
    }
    if let Some(address) = control_plane {
        status["accessProviders"] = json!([access_provider(name, address)]);
    }
    status
}

fn control_plane_healthy(created: &str, cluster: &Cluster) -> Value {
    let ready = cluster.condition("Ready");
    let (status, reason) = match ready.map(|ready| &*ready.status) {
        Some("True") => ("True", "ClusterReady"),
        Some("False") => ("False", "ClusterNotReady"),
        _ => ("Unknown", "ClusterStatusUnknown"),
    };
    let message: String = match ready {
        Some(ready) => ready.message.chars().take(MAX_MESSAGE_CHARS).collect(),
        None => "the cluster has not been reached yet".to_owned(),
    };
    let changed = ready.map_or(created, |ready| &*ready.last_transition_time);
    let changed = match time::parse(changed) {
        Ok(_) => changed,
        Err(_) => created,
    };
    json!({"type": "ControlPlaneHealthy", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": changed})
}

/// The properties, by name, that have a value.
fn properties(cluster: &Cluster) -> Vec<Value> {
    let spec = &cluster.spec;
    let mut properties = vec![
        ("cluster.clusterset.k8s.io".to_owned(), spec.id.clone()),
        ("flotilla.io/provider".to_owned(), spec.provider.clone()),
        ("flotilla.io/sync-mode".to_owned(), spec.sync_mode.clone()),
        (
            "topology.kubernetes.io/region".to_owned(),
            spec.region.clone(),
        ),
        (
            "topology.kubernetes.io/zone".to_owned(),
            spec.zones.join(","),
        ),
    ];
    if let Some(nodes) = &cluster.status.node_summary {
        properties.extend([
            ("flotilla.io/nodes".to_owned(), nodes.total_num.to_string()),
            (
                "flotilla.io/ready-nodes".to_owned(),
                nodes.ready_num.to_string(),
            ),
        ]);
    }
    let summary = cluster.status.resource_summary.iter();
    let allocatable = summary.flat_map(|summary| &summary.allocatable);
    properties.extend(allocatable.take(MAX_RESOURCES).map(|(resource, quantity)| {
        let name = format!("allocatable.flotilla.io/{resource}");
        (name, quantity.to_string())
    }));
    properties.retain(|(name, value)| {
        name.len() <= MAX_PROPERTY_NAME_BYTES
            && (1..=MAX_PROPERTY_VALUE_BYTES).contains(&value.len())
    });
    properties.sort_unstable();
    let properties = properties.into_iter();
    properties
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

/// The way through the cluster proxy, on which clients have the rights of their own user.
fn access_provider(cluster: &str, address: &ControlPlaneAddress) -> Value {
    let mut access = json!({"server": address.of_cluster(cluster),
        "extensions": [{"name": EXEC_EXTENSION, "extension": {"clusterName": cluster}}]});
    if !address.authority.is_empty() {
        access["certificate-authority-data"] = address.authority.as_str().into();
    }
    json!({"name": MANAGER, "cluster": access})
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: &str = "2026-01-01T00:00:00Z";

    fn status(cluster: Value) -> Value {
        let cluster: Cluster = serde_json::from_value(cluster).unwrap();
        desired_status("m", CREATED, &cluster, None)
    }

    // proves: INV-health
    #[test]
    fn health_follows_the_condition_ready() {
        for (ready, expected) in [
            (json!([]), ["Unknown", "ClusterStatusUnknown", CREATED]),
            (
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-02-01T00:00:00Z"}]),
                ["True", "ClusterReady", "2026-02-01T00:00:00Z"],
            ),
            (
                json!([{"type": "Ready", "status": "False", "lastTransitionTime": "soon"}]),
                ["False", "ClusterNotReady", CREATED],
            ),
            (
                json!([{"type": "Ready", "status": "?!", "message": "x".repeat(5000)}]),
                ["Unknown", "ClusterStatusUnknown", CREATED],
            ),
        ] {
            let status = status(json!({"status": {"conditions": ready}}));
            let condition = &status["conditions"][0];
            let fields = ["status", "reason", "lastTransitionTime"].map(|field| &condition[field]);
            assert_eq!(fields, expected, "{ready}");
            assert!(condition["message"].as_str().unwrap().len() <= MAX_MESSAGE_CHARS);
        }
    }

    // proves: INV-properties
    #[test]
    fn properties_are_named_and_bounded() {
        let mut allocatable: serde_json::Map<String, Value> = (0..100)
            .map(|i| (format!("example.com/r{i:03}"), "1".into()))
            .collect();
        allocatable.insert("cpu".into(), "4".into());
        let cluster = json!({
            "spec": {"id": "u", "syncMode": "Push", "region": "north", "zones": ["a", "b"]},
            "status": {"kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": 3, "readyNum": 2},
                "resourceSummary": {"allocatable": allocatable}},
        });
        let status = status(cluster);
        assert_eq!(status["version"], json!({"kubernetes": "v1.36.0"}));
        let properties = status["properties"].as_array().unwrap();
        let value = |name: &str| {
            let property = properties
                .iter()
                .find(|property| property["name"] == name)?;
            property["value"].as_str()
        };
        for (name, expected) in [
            ("cluster.clusterset.k8s.io", Some("u")),
            ("topology.kubernetes.io/region", Some("north")),
            ("topology.kubernetes.io/zone", Some("a,b")),
            ("flotilla.io/provider", None),
            ("flotilla.io/nodes", Some("3")),
            ("flotilla.io/ready-nodes", Some("2")),
            ("allocatable.flotilla.io/cpu", Some("4")),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
        assert_eq!(properties.len(), 6 + MAX_RESOURCES);
        let long = json!({"spec": {"zones": vec!["zone"; 1000]}});
        assert!(self::status(long).get("properties").is_none());
    }
}
