//! The warnings of Kubernetes when it stores a built-in kind: deprecated fields, and values that do
//! not do what they seem to (`WarningsOnCreate` and `WarningsOnUpdate` of its strategies).

mod annotations;
mod byte_amounts;
mod network;
mod node_labels;
mod ports;
mod services;
mod storage;
mod virtual_paths;
mod volumes;
mod workloads;

use machinery::Gvk;
use serde_json::Value;

use super::custom_resource_definition::formats;
use crate::unstructured::{has, items, text};
use annotations::has_annotation;

/// The warnings for an object, which is an update of `old` if there is one.
pub(crate) fn warnings(gvk: &Gvk, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut all = Vec::new();
    let out = &mut all;
    match (&*gvk.group, &*gvk.kind) {
        ("", "Pod") if old.is_none() => workloads::pod(new, out),
        ("", "PodTemplate") => workloads::pod_template(new, old, out),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job" | "CronJob") => workloads::workload(&gvk.kind, new, old, out),
        ("", "Service") => services::service(new, out),
        ("", "Endpoints") => network::endpoints(new, out),
        ("", "ServiceAccount") => service_account(new, old, out),
        ("", "Node") => node(new, out),
        ("", "PersistentVolume") => storage::persistent_volume(new, out),
        ("", "PersistentVolumeClaim") => storage::claim(new, out),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(new, out),
        ("storage.k8s.io", "CSIStorageCapacity") => storage::storage_capacity(new, out),
        ("node.k8s.io", "RuntimeClass") => storage::runtime_class(new, out),
        ("networking.k8s.io", "Ingress") if old.is_none() => network::ingress(new, out),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(new, out),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(new, out),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            return formats::warnings(new, old);
        }
        _ => {}
    }
    all
}

const MOUNTABLE_SECRETS_ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";

fn service_account(new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    let is_set = |object: &Value| has_annotation(object, MOUNTABLE_SECRETS_ANNOTATION);
    if is_set(new) && !old.is_some_and(is_set) {
        out.push(format!(
            "metadata.annotations[{MOUNTABLE_SECRETS_ANNOTATION}]: deprecated in v1.32+; prefer \
             separate namespaces to isolate access to mounted secrets"
        ));
    }
}

fn node(new: &Value, out: &mut Vec<String>) {
    if has(new, "/spec/configSource") {
        out.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(new, "/spec/externalID").is_empty() {
        let detail = "this field is deprecated, and is unused by Kubernetes";
        out.push(format!("spec.externalID: {detail}"));
    }
    for (i, cidr) in items(new, "/spec/podCIDRs").iter().enumerate() {
        let field = format!("spec.podCIDRs[{i}]");
        let cidr = cidr.as_str().unwrap_or("");
        out.extend(super::ip_addresses::cidr_warnings(&field, cidr));
    }
}

#[cfg(test)]
mod tests;
