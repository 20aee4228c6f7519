//! Reads from Works which Services the control plane has exported from which members.

use karmada_api::binding::Condition;
use karmada_api::names::cluster_of_execution_space;
use karmada_api::work::WorkSpecManifestIdentities;
use machinery::Object;
use serde::Deserialize;

use crate::slice_fields::EXPORT_KIND;

/// A namespace of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MemberNamespace {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
}

#[derive(Deserialize)]
struct PartialExportWork {
    #[serde(default)]
    spec: WorkSpecManifestIdentities,
    #[serde(default)]
    status: WorkConditions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkConditions {
    conditions: Vec<Condition>,
}

/// Decodes a Work if it may contain a ServiceExport. Most Works do not, and are not parsed.
fn decode_export_work(work: &Object) -> Option<PartialExportWork> {
    let bytes = work.bytes();
    let text = std::str::from_utf8(&bytes).ok()?;
    let mentioned = text.contains("\"ServiceExport\"");
    mentioned
        .then(|| machinery::json::from_str(text).ok())
        .flatten()
}

/// The Services whose ServiceExports a Work has: their namespaces and names.
pub(crate) fn exported_services(work: &Object) -> Vec<(MemberNamespace, String)> {
    let Some(cluster) = cluster_of_execution_space(work.namespace()) else {
        return Vec::new();
    };
    let Some(decoded) = decode_export_work(work) else {
        return Vec::new();
    };
    let manifests = decoded.spec.manifests().iter();
    let exports = manifests.filter(|m| {
        let gvk = m.gvk();
        gvk.group == karmada_api::MULTICLUSTER_GROUP && gvk.kind == EXPORT_KIND
    });
    exports
        .map(|export| {
            let namespace = MemberNamespace {
                cluster: cluster.to_owned(),
                namespace: export.metadata.namespace.clone(),
            };
            (namespace, export.metadata.name.clone())
        })
        .collect()
}

/// Whether a Work with a ServiceExport is applied.
pub(crate) fn is_applied_export(work: &Object) -> bool {
    let decoded = decode_export_work(work);
    let conditions = decoded.map(|d| d.status.conditions).unwrap_or_default();
    let mut conditions = conditions.iter();
    conditions.any(|c| c.condition_type == "Applied" && c.status == "True")
}
