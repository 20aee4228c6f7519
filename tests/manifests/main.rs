//! What an operator applies: the manifests against a real API server, the alerts
//! and dashboards against a real Prometheus that has scraped a loaded server.
#![expect(clippy::unwrap_used, reason = "a test ends where its machine fails it")]

/// Alerts fire on what they are there for.
mod alerts;
/// Alerts over time.
mod incidents;
/// Install, apply, uninstall.
mod install;
/// What the manifests run, on this machine.
mod installed;
/// What a fleet is given to do.
mod load;
/// Every rule and panel is answered from what a server under load tells.
mod monitoring;
/// A Prometheus, and what can be asked of it.
mod prometheus;
/// The rights that are installed.
mod rights;

use std::path::PathBuf;

const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// A file or directory below `manifests/`.
fn manifest(path: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests");
    PathBuf::from(root).join(path)
}

/// The recording rules and alerts as Prometheus itself reads them.
fn rules() -> serde_json::Value {
    let text = std::fs::read_to_string(manifest("monitoring/rules.yaml")).unwrap();
    let resource: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    serde_json::json!({"groups": resource["spec"]["groups"]})
}
