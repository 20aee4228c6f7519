//! The requirements of one replica of a pod template: resource requests and node claim
//! (`GenerateReplicaRequirements` in Karmada's `pkg/util/helper/binding.go`).

use quota::{RequestingContainer, ResourceList, ResourceRequirements, pod_requests};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Default, Deserialize)]
pub(crate) struct PodTemplateSpec {
    #[serde(default)]
    pub(crate) spec: ReplicaPodSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaPodSpec {
    containers: Vec<RequestingContainer>,
    init_containers: Vec<RequestingContainer>,
    resources: Option<ResourceRequirements>,
    overhead: Option<ResourceList>,
    node_selector: Map<String, Value>,
    affinity: Affinity,
    tolerations: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: NodeAffinity,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<Value>,
}

fn node_claim(pod: &ReplicaPodSpec) -> Option<Value> {
    let mut claim = Map::new();
    if let Some(required) = &pod
        .affinity
        .node_affinity
        .required_during_scheduling_ignored_during_execution
    {
        claim.insert("hardNodeAffinity".into(), required.clone());
    }
    if !pod.node_selector.is_empty() {
        claim.insert(
            "nodeSelector".into(),
            Value::Object(pod.node_selector.clone()),
        );
    }
    if !pod.tolerations.is_empty() {
        claim.insert("tolerations".into(), pod.tolerations.clone().into());
    }
    (!claim.is_empty()).then_some(Value::Object(claim))
}

/// The `ReplicaRequirements` as JSON; `None` when a replica has no requirements.
pub(crate) fn generate_replica_requirements(pod: &ReplicaPodSpec) -> Option<Value> {
    let mut out = Map::new();
    if let Some(claim) = node_claim(pod) {
        out.insert("nodeClaim".into(), claim);
    }
    let mut request = pod_requests(
        &pod.containers,
        &pod.init_containers,
        pod.resources.as_ref(),
        pod.overhead.as_ref(),
    );
    request.retain(|_, amount| !amount.is_zero());
    if !request.is_empty() {
        let request: Map<String, Value> = request
            .into_iter()
            .map(|(name, amount)| (name, amount.to_string().into()))
            .collect();
        out.insert("resourceRequest".into(), Value::Object(request));
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_requirements(pod: Value, expected: Option<Value>) {
        let spec: ReplicaPodSpec = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(generate_replica_requirements(&spec), expected, "{pod}");
    }

    // proves: NAT-requirements
    #[test]
    fn requests_add_up_and_init_containers_raise_them() {
        check_requirements(json!({"containers": [{"name": "a"}]}), None);
        check_requirements(
            json!({"containers": [
                {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "64Mi"}}},
                {"resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}],
                "initContainers": [{"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}],
                "overhead": {"cpu": "50m"}}),
            Some(json!({"resourceRequest": {"cpu": "350m", "memory": "1Gi"}})),
        );
    }

    // proves: NAT-requirements
    #[test]
    fn sidecars_and_resources_of_the_pod_count_as_for_the_kube_scheduler() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}});
        check_requirements(
            json!({"containers": [asks("1")], "initContainers": [sidecar, asks("2")], "overhead": {"cpu": "50m"}}),
            Some(json!({"resourceRequest": {"cpu": "2150m", "memory": "1Gi"}})),
        );
        check_requirements(
            json!({"containers": [asks("1")], "initContainers": [asks("500m"), sidecar]}),
            Some(json!({"resourceRequest": {"cpu": "1100m", "memory": "1Gi"}})),
        );
        check_requirements(
            json!({"containers": [asks("1")], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "50m"}}),
            Some(json!({"resourceRequest": {"cpu": "3050m"}})),
        );
    }

    // proves: NAT-node-claim
    #[test]
    fn node_claim_has_selector_affinity_and_tolerations() {
        let terms = json!({"nodeSelectorTerms": []});
        check_requirements(
            json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}],
                   "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}),
            Some(
                json!({"nodeClaim": {"hardNodeAffinity": terms, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}}),
            ),
        );
    }

    #[test]
    fn a_bad_quantity_is_an_error() {
        let pod = json!({"containers": [{"resources": {"requests": {"cpu": "many"}}}]});
        assert!(serde_json::from_value::<ReplicaPodSpec>(pod).is_err());
    }
}
