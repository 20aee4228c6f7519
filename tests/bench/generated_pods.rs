//! Pods as members have them, about 4 KiB each in JSON without managed fields: those of Deployments
//! with 1 to 20 replicas, which differ in names, addresses, times, nodes and containers.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::generated_servers::ObjectState;

/// The replicas of Deployments, again and again.
const REPLICAS: [usize; 6] = [1, 2, 3, 4, 10, 20];
const REPLICAS_TOGETHER: usize = 40;
const PODS_PER_NODE: usize = 40;
/// The annotation with the number of a pod's last change.
pub(crate) const CHANGE_ANNOTATION: &str = "bench/change";

/// A value of a pod that is not the same in all of them.
#[derive(Clone, Copy)]
enum PodField {
    App,
    TemplateHash,
    Suffix,
    Uid,
    OwnerUid,
    Revision,
    Change,
    Node,
    HostIp,
    PodIp,
    Time,
    Volume,
    Container,
}

impl PodField {
    /// The field of a placeholder.
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "app" => Self::App,
            "hash" => Self::TemplateHash,
            "suffix" => Self::Suffix,
            "uid" => Self::Uid,
            "owner" => Self::OwnerUid,
            "revision" => Self::Revision,
            "change" => Self::Change,
            "node" => Self::Node,
            "host-ip" => Self::HostIp,
            "pod-ip" => Self::PodIp,
            "time" => Self::Time,
            "volume" => Self::Volume,
            "container" => Self::Container,
            _ => return None,
        })
    }
}

enum PodPiece {
    Text(String),
    Field(PodField),
}

/// Encodes pods.
pub(crate) struct PodGenerator(Vec<PodPiece>);

/// A number that looks random (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The Deployment of a pod.
fn workload(number: usize) -> usize {
    let (mut rest, mut index) = (number % REPLICAS_TOGETHER, 0);
    while rest >= REPLICAS[index] {
        rest -= REPLICAS[index];
        index += 1;
    }
    number / REPLICAS_TOGETHER * REPLICAS.len() + index
}

impl PodGenerator {
    pub(crate) fn new() -> Self {
        let text = pod_template().to_string();
        // A field stands between two signs.
        let pieces = text.split('%').map(|piece| match PodField::parse(piece) {
            Some(field) => PodPiece::Field(field),
            None => PodPiece::Text(piece.to_owned()),
        });
        Self(pieces.collect())
    }

    pub(crate) fn encode(&self, state: ObjectState) -> String {
        let mut text = String::with_capacity(5 << 10);
        let own = mix((state.server << 32 | state.number) as u64);
        let shared = mix((state.server << 32 | workload(state.number) | 1 << 31) as u64);
        let (app, node) = (workload(state.number), state.number / PODS_PER_NODE);
        // Containers have ids of their own.
        let mut containers = own;
        for piece in &self.0 {
            let field = match piece {
                PodPiece::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                PodPiece::Field(field) => field,
            };
            // Writing to a string does not fail.
            let _ = match field {
                PodField::App => write!(text, "service-{app:04}"),
                PodField::TemplateHash => write!(text, "{:010x}", shared >> 24),
                PodField::Suffix => write!(text, "{:05x}", state.number),
                PodField::Uid => write_uid(&mut text, own),
                PodField::OwnerUid => write_uid(&mut text, shared),
                PodField::Revision => write!(text, "{}", state.revision),
                PodField::Change => write!(text, "{}", state.change),
                PodField::Node => write!(text, "node-{node:04}"),
                PodField::HostIp => write!(text, "10.0.{}.{}", node >> 8, node & 255),
                PodField::PodIp => {
                    let [a, b, ..] = own.to_le_bytes();
                    write!(text, "10.128.{a}.{b}")
                }
                PodField::Time => write!(
                    text,
                    "2026-01-{:02}T10:{:02}:{:02}Z",
                    own % 28 + 1,
                    own % 60,
                    own % 59
                ),
                PodField::Volume => write!(text, "{:05x}", own & 0xf_ffff),
                PodField::Container => {
                    containers = mix(containers);
                    write!(
                        text,
                        "{containers:016x}{own:016x}{:016x}{:016x}",
                        mix(own),
                        mix(containers)
                    )
                }
            };
        }
        text
    }
}

fn write_uid(text: &mut String, number: u64) -> std::fmt::Result {
    let other = mix(number);
    write!(
        text,
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        number >> 32,
        number & 0xffff,
        other >> 52,
        (other >> 40) & 0xfff,
        (number ^ other) & 0xffff_ffff_ffff
    )
}

fn container(name: &str, port: u16) -> Value {
    let probe = json!({"httpGet": {"path": "/ready", "port": port, "scheme": "HTTP"},
        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
    json!({"name": name, "image": format!("registry.example.com/services/{name}:1.25.3"),
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        "env": [{"name": "MODE", "value": "production"}],
        "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "kube-api-access-%volume%", "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent"})
}

fn container_status(name: &str) -> Value {
    json!({"name": name, "ready": true, "started": true, "restartCount": 0, "lastState": {},
        "state": {"running": {"startedAt": "%time%"}},
        "image": format!("registry.example.com/services/{name}:1.25.3"),
        "imageID": format!("registry.example.com/services/{name}@sha256:4bcd7f2a{}", "90ab".repeat(14)),
        "containerID": "containerd://%container%"})
}

fn pod_template() -> Value {
    let condition = |name: &str| json!({"type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": "%time%"});
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "metadata": {
            "name": "%app%-%hash%-%suffix%", "generateName": "%app%-%hash%-", "namespace": "shop",
            "uid": "%uid%", "resourceVersion": "%revision%", "creationTimestamp": "%time%",
            "labels": {"app.kubernetes.io/name": "%app%", "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "%hash%"},
            "annotations": {CHANGE_ANNOTATION: "%change%", "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "%app%-%hash%",
                "uid": "%owner%", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access-%volume%", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}],
            "containers": [container("main", 8080), container("proxy", 15090)],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "nodeName": "%node%",
            "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [toleration("node.kubernetes.io/not-ready"),
                toleration("node.kubernetes.io/unreachable")],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "startTime": "%time%",
            "hostIP": "%host-ip%", "hostIPs": [{"ip": "%host-ip%"}],
            "podIP": "%pod-ip%", "podIPs": [{"ip": "%pod-ip%"}],
            "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"),
                condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [container_status("main"), container_status("proxy")],
        },
    })
}
