//! Tests of the manifests that operators apply: the install manifests with a real kube-apiserver,
//! the alerts and dashboards with a real Prometheus that scrapes a server under load.

/// The chart of the agent.
mod agent_chart;
/// Alerts over time.
mod alert_incidents;
/// Each alert fires on its series.
mod alerts;
/// The Helm chart.
mod chart;
/// The console of the Helm chart.
mod console_chart;
/// The image and the archive of a release.
mod image;
/// The name of the image.
mod image_name;
/// Install, apply, uninstall.
mod install;
/// The workloads of the manifests, on this machine.
mod installed_etcd;
/// A load on a control plane.
mod load;
/// Every rule and panel has data under load.
mod monitoring;
/// A Prometheus process and its API.
mod prometheus;
/// The quickstart of the README.
mod quickstart;
/// The RBAC rules of the manifests.
mod rbac;

use std::path::PathBuf;

const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// The checkout.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A file or directory below `manifests/`.
fn manifest_path(path: &str) -> PathBuf {
    root().join("manifests").join(path)
}

/// The recording rules and alerts as Prometheus itself reads them.
fn prometheus_rules() -> serde_json::Value {
    let text = std::fs::read_to_string(manifest_path("monitoring/rules.yaml")).unwrap();
    let resource: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    serde_json::json!({"groups": resource["spec"]["groups"]})
}
