//! Keeps a ReplicaSchedulingPreference, which divides replicas here as in KubeFed.

use anyhow::Context;
use karmada_api::replica_preference::template_kind;
use serde_json::{Value, json};

use super::cluster_set::ClusterSet;
use super::fields;
use super::inventory::object_text;
use crate::convert::conversion::{Conversion, Severity};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A preference with the fields that its target needs.
pub(super) struct ReplicaPreference {
    pub(super) total: i64,
    /// Whether the object's own selector decides about the clusters too.
    pub(super) intersects: bool,
    manifest: Value,
}

impl ReplicaPreference {
    /// Checks the types of the fields, as KubeFed's schema does.
    pub(super) fn new(preference: &Value) -> anyhow::Result<Self> {
        let spec = &preference["spec"];
        let total = spec["totalReplicas"].as_i64();
        let total = total.context("spec.totalReplicas: must be a number")?;
        let clusters = fields::object(&spec["clusters"], "spec.clusters")?;
        for (cluster, replicas) in clusters.into_iter().flatten() {
            let entry = format!("spec.clusters[{cluster}]");
            fields::object(replicas, &entry)?;
            for field in ["minReplicas", "maxReplicas", "weight"] {
                fields::integer(&replicas[field], &format!("{entry}.{field}"))?;
            }
        }
        fields::boolean(&spec["rebalance"], "spec.rebalance")?;
        let intersects = &spec["intersectWithClusterSelector"];
        Ok(Self {
            total,
            intersects: fields::boolean(intersects, "spec.intersectWithClusterSelector")?,
            manifest: manifest(preference)?,
        })
    }

    /// The preference about a template of a kind whose policy places it in `clusters`. Unless it
    /// intersects, it would ignore that the namespace is not placed everywhere.
    pub(super) fn into_manifest(
        mut self,
        kind: &str,
        clusters: &ClusterSet,
        conversion: &mut Conversion,
    ) -> Value {
        let spec = &mut self.manifest["spec"];
        if spec["targetKind"].as_str().map(template_kind) != Some(kind) {
            spec["targetKind"] = json!(kind);
        }
        if !self.intersects && !clusters.is_all() {
            let field = "spec.intersectWithClusterSelector";
            spec["intersectWithClusterSelector"] = json!(true);
            let message = "it is set, so that replicas go only where the namespace is placed";
            conversion.report(Severity::Note, &object_text(&self.manifest), field, message);
        }
        self.manifest
    }

    /// The preference as it is.
    pub(super) fn into_unchanged_manifest(self) -> Value {
        self.manifest
    }
}

/// The preference without what a server has written into it.
fn manifest(preference: &Value) -> anyhow::Result<Value> {
    let metadata = &preference["metadata"];
    let mut clean = json!({"name": metadata["name"]});
    if !metadata["namespace"].is_null() {
        clean["namespace"] = metadata["namespace"].clone();
    }
    for field in ["labels", "annotations"] {
        let entries = fields::text_map(&metadata[field], &format!("metadata.{field}"))?;
        let mut entries = entries.cloned().unwrap_or_default();
        entries.remove(LAST_APPLIED);
        if !entries.is_empty() {
            clean[field] = json!(entries);
        }
    }
    Ok(json!({
        "apiVersion": preference["apiVersion"],
        "kind": preference["kind"],
        "metadata": clean,
        "spec": preference["spec"],
    }))
}
