//! Finds the pod spec of a manifest.

use serde_json::Value;

/// The path of the pod spec in the kinds that Karmada knows to have pods.
pub(crate) fn pod_spec_path(manifest: &Value) -> Option<&'static str> {
    match manifest["kind"].as_str()? {
        "Pod" => Some("/spec"),
        "ReplicaSet" | "Deployment" | "DaemonSet" | "StatefulSet" | "Job" => {
            Some("/spec/template/spec")
        }
        _ => None,
    }
}
