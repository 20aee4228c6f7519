//! Typed view of Cluster (`cluster.karmada.io/v1alpha1`).

use std::collections::BTreeMap;

use machinery::{Object, Quantity};
use serde::{Deserialize, Serialize};

use super::affinity::ClusterAttributes;
use super::binding::Condition;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cluster {
    pub metadata: super::binding::KarmadaObjectMeta,
    pub spec: ClusterSpec,
    pub status: ClusterStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    pub id: String,
    /// `Push` or `Pull`.
    pub sync_mode: String,
    pub api_endpoint: String,
    pub secret_ref: Option<LocalSecretReference>,
    pub impersonator_secret_ref: Option<LocalSecretReference>,
    #[serde(rename = "insecureSkipTLSVerification")]
    pub insecure_skip_tls_verification: bool,
    #[serde(rename = "proxyURL")]
    pub proxy_url: String,
    pub proxy_header: BTreeMap<String, String>,
    pub provider: String,
    pub region: String,
    pub zones: Vec<String>,
    pub taints: Vec<Taint>,
    pub resource_models: Vec<ResourceModel>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct LocalSecretReference {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceModel {
    pub grade: i64,
    pub ranges: Vec<ResourceModelRange>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceModelRange {
    pub name: String,
    pub min: Quantity,
    pub max: Quantity,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    pub kubernetes_version: String,
    pub api_enablements: Vec<ApiEnablement>,
    pub conditions: Vec<Condition>,
    pub node_summary: Option<NodeSummary>,
    pub resource_summary: Option<ResourceSummary>,
    pub remedy_actions: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSummary {
    pub total_num: i64,
    pub ready_num: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiEnablement {
    pub group_version: String,
    pub resources: Vec<ClusterApiResource>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterApiResource {
    pub name: String,
    pub kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSummary {
    pub allocatable: BTreeMap<String, Quantity>,
    pub allocating: BTreeMap<String, Quantity>,
    pub allocated: BTreeMap<String, Quantity>,
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatableModeling {
    pub grade: i64,
    pub count: i64,
}

/// Whether a cluster serves a kind (`APIEnablementStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiEnablementStatus {
    Enabled,
    Disabled,
    /// Not listed, and the list may be incomplete.
    Unknown,
}

impl Cluster {
    /// The fields that affinities match.
    pub fn attributes<'a>(&'a self, object: &'a Object) -> ClusterAttributes<'a> {
        ClusterAttributes {
            name: object.name(),
            labels: &object.meta().labels,
            provider: &self.spec.provider,
            region: &self.spec.region,
            zones: &self.spec.zones,
        }
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status
            .conditions
            .iter()
            .find(|c| c.condition_type == kind)
    }

    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|c| c.status == "True")
    }

    pub fn api_enablement(&self, api_version: &str, kind: &str) -> ApiEnablementStatus {
        let of_version = self
            .status
            .api_enablements
            .iter()
            .filter(|e| e.group_version == api_version);
        if of_version
            .flat_map(|e| &e.resources)
            .any(|r| r.kind == kind)
        {
            ApiEnablementStatus::Enabled
        } else if self
            .condition("CompleteAPIEnablements")
            .is_some_and(|c| c.status == "True")
        {
            ApiEnablementStatus::Disabled
        } else {
            ApiEnablementStatus::Unknown
        }
    }
}
