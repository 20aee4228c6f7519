//! Typed view of Work (`work.karmada.io/v1alpha1`).

use machinery::Gvk;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::binding::{Condition, KarmadaObjectMeta};

/// The condition of a Work about the last repair of its objects, after somebody in the member had
/// changed or deleted them. Karmada has no such condition.
pub const DRIFT_REPAIRED: &str = "DriftRepaired";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Work {
    pub metadata: KarmadaObjectMeta,
    pub spec: WorkSpec,
    pub status: WorkStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSpec {
    pub workload: WorkloadTemplate,
    pub suspend_dispatching: Option<bool>,
    pub preserve_resources_on_deletion: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkloadTemplate {
    pub manifests: Vec<Value>,
}

/// A view of `spec` that identifies the manifests without parsing them completely.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct WorkSpecManifestIdentities {
    workload: WorkloadManifestIdentities,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadManifestIdentities {
    manifests: Vec<ManifestIdentity>,
}

/// The identity of the object of a manifest.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManifestIdentity {
    pub api_version: String,
    pub kind: String,
    pub metadata: ManifestNamespacedName,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ManifestNamespacedName {
    pub namespace: String,
    pub name: String,
}

impl ManifestIdentity {
    pub fn gvk(&self) -> Gvk {
        Gvk::from_api_version(&self.api_version, &self.kind)
    }
}

impl WorkSpecManifestIdentities {
    pub fn manifests(&self) -> &[ManifestIdentity] {
        &self.workload.manifests
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkStatus {
    pub conditions: Vec<Condition>,
    pub manifest_statuses: Vec<ManifestStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ManifestStatus {
    pub identifier: ResourceIdentifier,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
    /// The revision of a staged rollout that the object carried when its health was observed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceIdentifier {
    pub ordinal: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub version: String,
    pub kind: String,
    /// Always empty, although the schema requires it.
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl Work {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .find(|c| c.condition_type == kind)
    }

    pub fn is_applied(&self) -> bool {
        self.condition("Applied")
            .is_some_and(|c| c.status == "True")
    }
}
