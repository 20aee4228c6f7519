//! What one replica of a pod template needs: where it may run and what it asks
//! for (`GenerateReplicaRequirements` of Karmada's `pkg/util/helper/binding.go`).

use std::collections::BTreeMap;

use machinery::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::native::Error;

#[derive(Default, Deserialize)]
pub(crate) struct PodTemplate {
    #[serde(default)]
    pub(crate) spec: PodSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: Amounts,
    node_selector: Map<String, Value>,
    affinity: Affinity,
    tolerations: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Amounts,
    limits: Amounts,
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

/// A `ResourceList` as it stands in a manifest: text or a bare number.
type Amounts = BTreeMap<String, Value>;
type Sums = BTreeMap<String, Quantity>;

fn read(amount: &Value) -> Result<Quantity, Error> {
    let text = match amount {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Quantity::parse(&text).map_err(|e| Error::Quantity(format!("quantity {text:?}: {e}")))
}

impl Container {
    /// Requests; a limit stands in where a request is missing.
    fn asks(&self) -> Result<Sums, Error> {
        let mut sums = Sums::new();
        for (name, amount) in self.resources.limits.iter().chain(&self.resources.requests) {
            sums.insert(name.clone(), read(amount)?);
        }
        Ok(sums)
    }
}

fn add(to: &mut Sums, more: Sums) {
    for (name, amount) in more {
        let sum = match to.get(&name) {
            Some(have) => *have + amount,
            None => amount,
        };
        to.insert(name, sum);
    }
}

fn request(pod: &PodSpec) -> Result<Sums, Error> {
    let mut total = Sums::new();
    for container in &pod.containers {
        add(&mut total, container.asks()?);
    }
    for container in &pod.init_containers {
        for (name, amount) in container.asks()? {
            if total.get(&name).is_none_or(|have| *have < amount) {
                total.insert(name, amount);
            }
        }
    }
    let overhead = pod
        .overhead
        .iter()
        .map(|(name, a)| Ok((name.clone(), read(a)?)));
    add(&mut total, overhead.collect::<Result<Sums, Error>>()?);
    total.retain(|_, amount| !amount.is_zero());
    Ok(total)
}

fn node_claim(pod: &PodSpec) -> Option<Value> {
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

/// `ReplicaRequirements`, or nothing when a replica asks for nothing.
pub(crate) fn requirements(pod: &PodSpec) -> Result<Option<Value>, Error> {
    let mut out = Map::new();
    if let Some(claim) = node_claim(pod) {
        out.insert("nodeClaim".into(), claim);
    }
    let request = request(pod)?;
    if !request.is_empty() {
        let request: Map<String, Value> = request
            .into_iter()
            .map(|(name, amount)| (name, amount.to_string().into()))
            .collect();
        out.insert("resourceRequest".into(), Value::Object(request));
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pod: Value, expected: Option<Value>) {
        let spec: PodSpec = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(requirements(&spec).unwrap(), expected, "{pod}");
    }

    // proves: NAT-requirements
    #[test]
    fn requests_add_up_and_init_containers_raise_them() {
        check(json!({"containers": [{"name": "a"}]}), None);
        check(
            json!({"containers": [
                {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "64Mi"}}},
                {"resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}],
                "initContainers": [{"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}],
                "overhead": {"cpu": "50m"}}),
            Some(json!({"resourceRequest": {"cpu": "350m", "memory": "1Gi"}})),
        );
    }

    // proves: NAT-node-claim
    #[test]
    fn where_it_may_run_is_claimed() {
        let terms = json!({"nodeSelectorTerms": []});
        check(
            json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}],
                   "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}),
            Some(
                json!({"nodeClaim": {"hardNodeAffinity": terms, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}}),
            ),
        );
    }

    #[test]
    fn a_bad_quantity_is_an_error() {
        let pod = serde_json::from_value(
            json!({"containers": [{"resources": {"requests": {"cpu": "many"}}}]}),
        )
        .unwrap();
        assert!(requirements(&pod).is_err());
    }
}
