//! Creates the nodes, and updates their status only if their size has changed.

use client::{Api, Error, Patch, ResourcePath, WriteOptions};
use machinery::Gvr;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use crate::options::HollowClusterOptions;

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");

/// Ensures that the nodes exist with the capacity that the options specify.
pub(crate) async fn ensure_nodes(
    api: &dyn Api,
    names: &[String],
    options: &HollowClusterOptions,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    let status = node_status(options, &rfc3339_seconds(now));
    for name in names {
        let at = ResourcePath::object(&NODES, "", name);
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "hollow"}},
            "spec": {},
        });
        let all = ResourcePath::collection(&NODES, "");
        let node = match api.create(all, node.into(), &WriteOptions::default()).await {
            Ok(created) => created.value()?,
            Err(e) if e.is_already_exists() => api.get(at).await?.value()?,
            Err(e) => return Err(e),
        };
        if node["status"]["allocatable"] != status["allocatable"] {
            // A patch, because an update would conflict where other clients write nodes too.
            let patch = Patch::Merge(json!({"status": status}));
            api.patch(at.subresource("status"), patch, &WriteOptions::default())
                .await?;
        }
    }
    Ok(())
}

fn node_status(options: &HollowClusterOptions, time: &str) -> Value {
    let offer = json!({"cpu": options.node_cpu, "memory": options.node_memory, "pods": options.pods_per_node.to_string()});
    json!({
        "capacity": offer, "allocatable": offer,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow kubelet is ready",
                        "lastHeartbeatTime": time, "lastTransitionTime": time}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"kubeletVersion": options.kubelet_version, "kubeProxyVersion": options.kubelet_version, "operatingSystem": "linux",
                     "architecture": "amd64", "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "hollow",
                     "osImage": "hollow", "containerRuntimeVersion": "hollow://1"},
    })
}
