//! Pods: creates them from templates and decodes the few fields that plans need.

use std::collections::BTreeMap;

use machinery::Object;
use machinery::object::MalformedObject;
use quota::{RequestingContainer, ResourceList, ResourceRequirements, pod_requests};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::capacity::ComputeResources;

/// Pods with an image of this prefix never start, to demonstrate failures.
pub(crate) const BROKEN_IMAGE_PREFIX: &str = "fake/";
const HASH_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The fields of a pod that the hollow cluster reads.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HollowPodFields {
    pub(crate) metadata: HollowPodMetadataFields,
    pub(crate) spec: HollowPodSpecFields,
    pub(crate) status: HollowPodStatusFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HollowPodMetadataFields {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) deletion_grace_period_seconds: i64,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HollowPodSpecFields {
    pub(crate) node_name: String,
    pub(crate) restart_policy: String,
    pub(crate) containers: Vec<HollowContainerFields>,
    pub(crate) init_containers: Vec<HollowContainerFields>,
    resources: Option<ResourceRequirements>,
    overhead: Option<ResourceList>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HollowContainerFields {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) ports: Vec<HollowContainerPortFields>,
    #[serde(flatten)]
    resources: RequestingContainer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HollowContainerPortFields {
    pub(crate) name: String,
    pub(crate) container_port: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HollowPodStatusFields {
    pub(crate) phase: String,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    conditions: Vec<PodCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl HollowContainerFields {
    /// The resources that the container requests.
    pub(crate) fn requests(&self) -> ResourceList {
        pod_requests([&self.resources], [], None, None)
    }
}

impl HollowPodStatusFields {
    /// Whether a status beyond the phase was written.
    pub(crate) fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }
}

impl HollowPodFields {
    pub(crate) fn from_value(pod: &Value) -> Result<Self, MalformedObject> {
        Ok(Self::deserialize(pod)?)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.status == "True")
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn is_succeeded(&self) -> bool {
        self.status.phase == "Succeeded"
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_succeeded() || self.status.phase == "Failed"
    }

    pub(crate) fn label(&self, key: &str) -> &str {
        self.metadata.labels.get(key).map_or("", String::as_str)
    }

    /// The resources that the pod requests from a node.
    pub(crate) fn requests(&self) -> ComputeResources {
        let requests = pod_requests(
            self.spec.containers.iter().map(|c| &c.resources),
            self.spec.init_containers.iter().map(|c| &c.resources),
            self.spec.resources.as_ref(),
            self.spec.overhead.as_ref(),
        );
        let amount = |name| requests.get(name).copied().unwrap_or_default();
        ComputeResources {
            cpu: amount("cpu"),
            memory: amount("memory"),
            pods: 1,
        }
    }

    pub(crate) fn has_broken_image(&self) -> bool {
        self.spec
            .containers
            .iter()
            .any(|c| c.image.starts_with(BROKEN_IMAGE_PREFIX))
    }
}

/// The workload that a pod or replica set belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentWorkload<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) object: &'a Object,
}

impl ParentWorkload<'_> {
    /// The owner references of its children, with the workload as their controller.
    pub(crate) fn owner_references(&self) -> Value {
        json!([{"apiVersion": self.api_version, "kind": self.kind, "name": self.object.name(),
                "uid": self.object.uid(), "controller": true, "blockOwnerDeletion": true}])
    }
}

/// A pod from a template, owned by `parent`, with additional labels.
pub(crate) fn pod_from_template(
    parent: &ParentWorkload<'_>,
    template: &Value,
    name: &str,
    labels: &[(&str, &str)],
) -> Value {
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    metadata.insert("name".into(), name.into());
    metadata.insert("namespace".into(), parent.object.namespace().into());
    metadata.insert("ownerReferences".into(), parent.owner_references());
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"].clone()});
    // As the admission of a cluster does: tokens of the account may be projected.
    if pod["spec"]["serviceAccountName"].is_null() {
        pod["spec"]["serviceAccountName"] = "default".into();
    }
    for (key, value) in labels {
        pod["metadata"]["labels"][*key] = (*value).into();
    }
    pod
}

/// A short, stable hash of a text (FNV-1a, in the alphabet of generated names).
pub(crate) fn short_hash(text: &str) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut out = String::new();
    for _ in 0..10 {
        out.push(HASH_ALPHABET[(hash % 27) as usize] as char);
        hash /= 27;
    }
    out
}

/// The name suffix of the `nth` pod of an owner: stable, so that a repeated plan names the
/// same pod again instead of a second one.
pub(crate) fn pod_name_suffix(owner_uid: &str, nth: u64) -> String {
    let mut hash = short_hash(&format!("{owner_uid}/{nth}"));
    hash.truncate(5);
    hash
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pod in some state, for the tests of the controllers.
    pub(crate) fn pod(name: &str, state: &str) -> HollowPodFields {
        let conditions =
            json!([{"type": "Ready", "status": if state == "Ready" { "True" } else { "False" }}]);
        let phase = if state == "Ready" { "Running" } else { state };
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"phase": phase, "conditions": conditions}})).unwrap()
    }

    #[test]
    fn a_pod_requests_its_containers_or_its_largest_init_container() {
        let view: HollowPodFields = serde_json::from_value(json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}, {"resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [{"resources": {"requests": {"cpu": "2"}}}]}})).unwrap();
        let room = view.requests();
        assert_eq!(
            (room.cpu.milli_value(), room.memory.value(), room.pods),
            (2000, 1 << 30, 1)
        );
    }

    #[test]
    fn a_pod_requests_its_sidecars_its_overhead_and_pod_level_resources() {
        let room = |spec: Value| {
            let view: HollowPodFields = serde_json::from_value(json!({"spec": spec})).unwrap();
            view.requests().cpu.milli_value()
        };
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar =
            json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        let inits = json!([sidecar, asks("2")]);
        assert_eq!(
            room(
                json!({"containers": [asks("1")], "initContainers": inits, "overhead": {"cpu": "50m"}})
            ),
            2150
        );
        assert_eq!(
            room(json!({"containers": [asks("1")], "initContainers": [sidecar]})),
            1100
        );
        assert_eq!(
            room(json!({"containers": [asks("1")], "resources": {"requests": {"cpu": "3"}}})),
            3000
        );
    }

    #[test]
    fn names_are_stable_and_differ() {
        assert_eq!(pod_name_suffix("u", 1), pod_name_suffix("u", 1));
        assert_ne!(pod_name_suffix("u", 1), pod_name_suffix("u", 2));
        assert_eq!(pod_name_suffix("u", 1).len(), 5);
    }
}
