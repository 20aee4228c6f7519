//! The changes that an agent may make to the Works in its execution namespace. Does no I/O.

use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_SERVICE_NAME, ENDPOINT_SLICE_SERVICE_NAMESPACE, ENDPOINT_SLICE_WORK_MANAGED_BY,
    MULTI_CLUSTER_SERVICE_NAME, MULTI_CLUSTER_SERVICE_NAMESPACE, WORK_ID,
};
use serde_json::Value;

use super::agent_write::{AgentWrite, shown};
use crate::attributes::AdmissionOperation;
use crate::unstructured::{entries, get, items, text};

/// The labels of a Work that reports an EndpointSlice.
const REPORT_LABELS: [&str; 6] = [
    WORK_ID,
    ENDPOINT_SLICE_WORK_MANAGED_BY,
    ENDPOINT_SLICE_SERVICE_NAMESPACE,
    ENDPOINT_SLICE_SERVICE_NAME,
    MULTI_CLUSTER_SERVICE_NAMESPACE,
    MULTI_CLUSTER_SERVICE_NAME,
];
const MAX_CONDITIONS: usize = 32;
/// Karmada's Works have one manifest each.
const MAX_MANIFEST_STATUSES: usize = 1000;
/// The length of messages of conditions in Kubernetes.
const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Fails unless the agent may write the Work.
pub(super) fn check_work(space: &str, write: &AgentWrite<'_>) -> Result<(), String> {
    if write.namespace != space {
        return Err(format!(
            "an agent may only write Works in the namespace {space}"
        ));
    }
    match (write.operation, write.subresource) {
        (AdmissionOperation::Create, "") => check_report(write.new),
        (AdmissionOperation::Update, "") => check_update(write.new, write.old),
        (AdmissionOperation::Update, "status") => check_status(write.new),
        _ => Ok(()),
    }
}

/// A Work of an agent has one EndpointSlice, and belongs to no binding.
fn check_report(work: &Value) -> Result<(), String> {
    let manifests = items(work, "/spec/workload/manifests");
    let is_slice = |manifest: &Value| {
        text(manifest, "/apiVersion") == "discovery.k8s.io/v1"
            && text(manifest, "/kind") == "EndpointSlice"
    };
    if manifests.len() != 1 || !is_slice(&manifests[0]) {
        return Err(
            "spec.workload.manifests: a Work of an agent must have one EndpointSlice".into(),
        );
    }
    for (key, _) in entries(work, "/metadata/labels") {
        if !REPORT_LABELS.contains(&key) {
            let key = shown(key);
            return Err(format!(
                "metadata.labels[{key}]: may not be set by an agent"
            ));
        }
    }
    if let Some((key, _)) = entries(work, "/metadata/annotations").next() {
        let key = shown(key);
        return Err(format!(
            "metadata.annotations[{key}]: may not be set by an agent"
        ));
    }
    Ok(())
}

/// Whether an agent may have created the Work.
pub(super) fn is_report(work: &Value) -> bool {
    check_report(work).is_ok()
}

/// The fields that an agent's report may change; of other Works an agent changes finalizers.
fn check_update(new: &Value, old: &Value) -> Result<(), String> {
    if is_report(old) {
        return check_report(new);
    }
    for field in [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/workload/manifests",
    ] {
        let is_empty = |value: &Value| {
            value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        let (new, old) = (get(new, field), get(old, field));
        if new != old && !(is_empty(new) && is_empty(old)) {
            let field = field[1..].replace('/', ".");
            return Err(format!("{field}: may not be changed by an agent"));
        }
    }
    Ok(())
}

fn check_status(work: &Value) -> Result<(), String> {
    let statuses = items(work, "/status/manifestStatuses").len();
    if statuses > MAX_MANIFEST_STATUSES {
        return Err(format!(
            "status.manifestStatuses: must have at most {MAX_MANIFEST_STATUSES} items"
        ));
    }
    check_conditions(work)
}

/// The conditions that an agent reports, of a Work or of its Cluster.
pub(super) fn check_conditions(object: &Value) -> Result<(), String> {
    let conditions = items(object, "/status/conditions");
    if conditions.len() > MAX_CONDITIONS {
        return Err(format!(
            "status.conditions: must have at most {MAX_CONDITIONS} items"
        ));
    }
    let is_long = |condition: &Value| text(condition, "/message").len() > MAX_MESSAGE_BYTES;
    if conditions.iter().any(is_long) {
        return Err(format!(
            "status.conditions: a message must have at most {MAX_MESSAGE_BYTES} bytes"
        ));
    }
    Ok(())
}
