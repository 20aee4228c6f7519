//! Decides which EndpointSlices a Service has. Pure.
//!
//! Source: Kubernetes' `staging/src/k8s.io/endpointslice`. Unlike there, the names of slices are not
//! random, and a Service has as few slices as possible.

use std::collections::BTreeMap;

use karmada_api::names::safe_encoded_hash;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pods::HollowPodFields;

/// As `--max-endpoints-per-slice` of kube-controller-manager.
const MAX_ENDPOINTS_PER_SLICE: usize = 100;
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const MANAGED_BY_VALUE: &str = "endpointslice-controller.k8s.io";

/// The fields of a Service that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceFields {
    pub(crate) spec: ServiceSpecFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpecFields {
    selector: BTreeMap<String, String>,
    ports: Vec<ServicePortFields>,
    publish_not_ready_addresses: bool,
    #[serde(rename = "type")]
    service_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServicePortFields {
    name: String,
    protocol: String,
    app_protocol: Option<String>,
    port: i64,
    target_port: Value,
}

impl ServiceSpecFields {
    /// Whether the Service has endpoints that follow pods.
    pub(crate) fn selects_pods(&self) -> bool {
        !self.selector.is_empty() && self.service_type != "ExternalName"
    }

    pub(crate) fn selects<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let mut selector = self.selector.iter();
        self.selects_pods() && selector.all(|(key, value)| label(key) == Some(value))
    }

    /// The ports of the endpoints; `pod` resolves their names.
    fn endpoint_ports(&self, pod: Option<&HollowPodFields>) -> Vec<Value> {
        let ports = self.ports.iter().filter_map(|port| {
            let number = match &port.target_port {
                Value::Number(number) if number.as_i64() != Some(0) => number.as_i64()?,
                Value::String(name) => container_port(pod?, name)?,
                _ => port.port,
            };
            let protocol = match port.protocol.as_str() {
                "" => "TCP",
                protocol => protocol,
            };
            let mut endpoint_port =
                json!({"name": port.name, "protocol": protocol, "port": number});
            if let Some(protocol) = &port.app_protocol {
                endpoint_port["appProtocol"] = protocol.as_str().into();
            }
            Some(endpoint_port)
        });
        ports.collect()
    }

    fn endpoint(&self, namespace: &str, pod: &HollowPodFields) -> Value {
        let (serving, terminating) = (pod.is_ready(), pod.is_deleting());
        let ready = self.publish_not_ready_addresses || (serving && !terminating);
        json!({"addresses": [pod.status.pod_ip], "nodeName": pod.spec.node_name,
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            "targetRef": {"kind": "Pod", "namespace": namespace,
                "name": pod.metadata.name, "uid": pod.metadata.uid}})
    }
}

fn container_port(pod: &HollowPodFields, name: &str) -> Option<i64> {
    let mut ports = pod.spec.containers.iter().flat_map(|c| &c.ports);
    Some(ports.find(|port| port.name == name)?.container_port)
}

/// The slices of a Service with the pods that it selects; without pods, one without endpoints.
pub(crate) fn desired_slices(
    service: &Object,
    spec: &ServiceSpecFields,
    pods: &[&HollowPodFields],
) -> Vec<Value> {
    let addressed = |pod: &&&HollowPodFields| !pod.status.pod_ip.is_empty() && !pod.is_finished();
    let mut pods: Vec<&HollowPodFields> = pods.iter().filter(addressed).copied().collect();
    pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let namespace = service.namespace();
    let ports = spec.endpoint_ports(pods.first().copied());
    let endpoints: Vec<Value> = pods.iter().map(|p| spec.endpoint(namespace, p)).collect();
    let count = endpoints.len().div_ceil(MAX_ENDPOINTS_PER_SLICE).max(1);
    let slices = (0..count).map(|number| {
        let from = number * MAX_ENDPOINTS_PER_SLICE;
        let to = endpoints.len().min(from + MAX_ENDPOINTS_PER_SLICE);
        let hash = safe_encoded_hash(&format!("{}/{number}", service.uid()));
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{}-{hash}", service.name()), "namespace": namespace,
                "labels": {SERVICE_NAME: service.name(), MANAGED_BY: MANAGED_BY_VALUE},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service.name(),
                    "uid": service.uid(), "controller": true, "blockOwnerDeletion": true}],
            },
            "addressType": "IPv4", "endpoints": endpoints[from..to], "ports": ports})
    });
    slices.collect()
}

/// An existing slice with the desired endpoints and ports; `None` if it has them.
pub(crate) fn updated_slice(desired: &Value, mut existing: Value) -> Option<Value> {
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let mut changed = false;
    for field in ["endpoints", "ports"] {
        let (now, before) = (&desired[field], &existing[field]);
        if now != before && !(is_empty(now) && is_empty(before)) {
            existing[field] = now.clone();
            changed = true;
        }
    }
    changed.then_some(existing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(ports: Value) -> (Object, ServiceFields) {
        let value = json!({"metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {"selector": {"app": "web"}, "ports": ports}});
        (
            Object::from_value(&value).unwrap(),
            ServiceFields::deserialize(value).unwrap(),
        )
    }

    fn pod(name: &str, ready: &str) -> HollowPodFields {
        let value = json!({"metadata": {"name": name, "uid": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "node-0", "containers": [
                {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": ready}]}});
        HollowPodFields::from_value(&value).unwrap()
    }

    // proves: HOL-endpoints
    #[test]
    fn endpoints_are_the_pods_with_addresses() {
        let (object, fields) = service(json!([
            {"port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "targetPort": 82}, {"name": "c", "port": 83}]));
        let (second, first, mut away) = (pod("b", "False"), pod("a", "True"), pod("c", "True"));
        away.status.pod_ip = String::new();
        let slices = desired_slices(&object, &fields.spec, &[&second, &first, &away]);
        let [slice] = &slices[..] else {
            panic!("{slices:?}");
        };
        let ports: Vec<&Value> = slice["ports"].as_array().unwrap().iter().collect();
        let numbers: Vec<&Value> = ports.iter().map(|p| &p["port"]).collect();
        assert_eq!(numbers, [&json!(8080), &json!(82), &json!(83)]);
        let endpoints = slice["endpoints"].as_array().unwrap();
        let shown: Vec<_> = endpoints
            .iter()
            .map(|e| (&e["targetRef"]["name"], &e["conditions"]["ready"]))
            .collect();
        assert_eq!(
            shown,
            [(&json!("a"), &json!(true)), (&json!("b"), &json!(false))]
        );
        assert_eq!(updated_slice(slice, slice.clone()), None);
    }

    // proves: HOL-endpoints
    #[test]
    fn slices_are_split_and_never_absent() {
        let (object, fields) = service(json!([{"port": 80}]));
        let none = desired_slices(&object, &fields.spec, &[]);
        assert_eq!(none.len(), 1);
        let mut stored = none[0].clone();
        stored["endpoints"] = Value::Null;
        assert_eq!(updated_slice(&none[0], stored), None);
        let pods: Vec<_> = (0..150).map(|n| pod(&format!("p{n:03}"), "True")).collect();
        let pods: Vec<&HollowPodFields> = pods.iter().collect();
        let slices = desired_slices(&object, &fields.spec, &pods);
        let counts: Vec<usize> = slices
            .iter()
            .map(|s| s["endpoints"].as_array().unwrap().len())
            .collect();
        assert_eq!(counts, [100, 50]);
        assert_eq!(slices[0]["metadata"]["name"], none[0]["metadata"]["name"]);
        assert!(updated_slice(&slices[0], none[0].clone()).is_some());
    }
}
