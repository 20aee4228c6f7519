//! The status of workloads, all of whose replicas are ready at once.

use serde_json::{Value, json};

/// The status that the controllers of a member would set in the end; `None` for kinds without one.
pub(super) fn ready_status(kind: &str, object: &Value) -> Option<Value> {
    if kind != "Deployment" {
        return None;
    }
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let condition = |kind: &str, reason: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": time, "lastUpdateTime": time,
        })
    };
    Some(json!({
        "observedGeneration": object["metadata"]["generation"],
        "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    }))
}
