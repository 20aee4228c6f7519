//! The usage of pods and nodes that a simulated cluster reports in place of metrics-server.
//! Each container of a running pod uses half of the CPU and memory that it requests; without a
//! request it uses 1m CPU and 4Mi memory. A node uses what its pods use. Pure.

use std::collections::HashMap;

use jiff::Timestamp;
use machinery::object::MalformedObject;
use machinery::time::rfc3339_seconds;
use machinery::{Object, Quantity};
use serde_json::{Value, json};

use crate::pods::{HollowContainerFields, HollowPodFields};

const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// How long a measurement takes, as metrics-server's `--metric-resolution`.
const WINDOW: &str = "15s";
const MILLI_CPU_WITHOUT_REQUEST: i64 = 1;
const MEMORY_WITHOUT_REQUEST: i64 = 4 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct ResourceUsage {
    cpu: Quantity,
    memory: Quantity,
}

impl ResourceUsage {
    fn of_container(container: &HollowContainerFields) -> Self {
        let requests = container.requests();
        let half = |name: &str, value: fn(Quantity) -> i128| {
            let amount = requests.get(name).copied().map(value);
            let half = i64::try_from(amount.unwrap_or_default() / 2).unwrap_or(i64::MAX);
            Some(half).filter(|half| *half > 0)
        };
        let cpu = half("cpu", Quantity::milli_value).unwrap_or(MILLI_CPU_WITHOUT_REQUEST);
        let memory = half("memory", Quantity::value).unwrap_or(MEMORY_WITHOUT_REQUEST);
        Self {
            cpu: Quantity::from_milli(cpu),
            memory: Quantity::from_bytes(memory),
        }
    }

    fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
    }

    fn to_value(self) -> Value {
        json!({"cpu": self.cpu.to_string(), "memory": self.memory.to_string()})
    }
}

/// Whether a pod uses anything.
fn is_running(pod: &HollowPodFields) -> bool {
    pod.status.phase == "Running" && !pod.spec.node_name.is_empty()
}

/// The PodMetrics of a pod, if it runs.
pub fn pod_metrics(pod: &Object, now: Timestamp) -> Result<Option<Object>, MalformedObject> {
    let fields = pod.decode::<HollowPodFields>()?;
    if !is_running(&fields) {
        return Ok(None);
    }
    let containers = fields.spec.containers.iter().map(|container| {
        let usage = ResourceUsage::of_container(container).to_value();
        json!({"name": container.name, "usage": usage})
    });
    let containers: Vec<Value> = containers.collect();
    let metrics = metrics_of(pod, "PodMetrics", now, ("containers", containers.into()))?;
    Ok(Some(metrics))
}

/// The usage of nodes: the sum of the usage of their pods.
#[derive(Default)]
pub struct NodeUsages(HashMap<String, ResourceUsage>);

impl NodeUsages {
    /// Adds the usage of the pods to that of their nodes.
    pub fn from_pods(pods: &[Object]) -> Result<Self, MalformedObject> {
        let mut usages: HashMap<String, ResourceUsage> = HashMap::new();
        for pod in pods {
            let fields = pod.decode::<HollowPodFields>()?;
            if is_running(&fields) {
                let usage = usages.entry(fields.spec.node_name.clone()).or_default();
                for container in &fields.spec.containers {
                    usage.add(ResourceUsage::of_container(container));
                }
            }
        }
        Ok(Self(usages))
    }

    /// The NodeMetrics of a node.
    pub fn node_metrics(&self, node: &Object, now: Timestamp) -> Result<Object, MalformedObject> {
        let usage = self.0.get(node.name()).copied().unwrap_or_default();
        metrics_of(node, "NodeMetrics", now, ("usage", usage.to_value()))
    }
}

/// The metrics of a pod or node, with its labels, as metrics-server writes them.
fn metrics_of(
    measured: &Object,
    kind: &str,
    now: Timestamp,
    (field, usage): (&str, Value),
) -> Result<Object, MalformedObject> {
    let time = rfc3339_seconds(now);
    let mut metadata = json!({"name": measured.name(), "creationTimestamp": time});
    if !measured.namespace().is_empty() {
        metadata["namespace"] = measured.namespace().into();
    }
    let labels = measured.value()?["metadata"]["labels"].take();
    if !labels.is_null() {
        metadata["labels"] = labels;
    }
    let mut metrics = json!({
        "kind": kind, "apiVersion": API_VERSION, "metadata": metadata,
        "timestamp": time, "window": WINDOW,
    });
    metrics[field] = usage;
    Object::from_value(&metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, phase: &str, containers: Value) -> Object {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
            "spec": {"nodeName": node, "containers": containers}, "status": {"phase": phase},
        });
        Object::from_value(&pod).unwrap()
    }

    #[test]
    fn usage_is_half_of_the_requests() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let requests =
            |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
        let web = json!([{"name": "a", "resources": requests("300m", "100Mi")}, {"name": "b"}]);
        let limited =
            json!([{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]);
        let pods = [
            pod("web", "n1", "Running", web),
            pod("db", "n1", "Running", limited),
            pod("waits", "", "Pending", json!([{"name": "a"}])),
        ];
        let metrics = pod_metrics(&pods[0], now).unwrap().unwrap();
        assert_eq!(
            metrics.value().unwrap(),
            json!({
                "apiVersion": API_VERSION, "kind": "PodMetrics",
                "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"},
                             "creationTimestamp": "2026-01-02T03:04:05Z"},
                "timestamp": "2026-01-02T03:04:05Z", "window": "15s",
                "containers": [{"name": "a", "usage": {"cpu": "150m", "memory": "50Mi"}},
                               {"name": "b", "usage": {"cpu": "1m", "memory": "4Mi"}}],
            })
        );
        assert!(pod_metrics(&pods[2], now).unwrap().is_none());

        let usages = NodeUsages::from_pods(&pods).unwrap();
        for (name, cpu, memory) in [("n1", "1151m", "566Mi"), ("n2", "0", "0")] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            let node = Object::from_value(&node).unwrap();
            let metrics = usages.node_metrics(&node, now).unwrap().value().unwrap();
            assert_eq!(metrics["usage"], json!({"cpu": cpu, "memory": memory}));
            assert_eq!(metrics["metadata"]["namespace"], Value::Null);
        }
    }
}
