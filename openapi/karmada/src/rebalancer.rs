//! Typed view of WorkloadRebalancer (`apps.karmada.io/v1alpha1`).

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkloadRebalancer {
    pub spec: WorkloadRebalancerSpec,
    pub status: WorkloadRebalancerStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRebalancerSpec {
    pub workloads: Vec<WorkloadReference>,
    pub ttl_seconds_after_finished: Option<i64>,
}

/// Ordered as Karmada orders the workloads of a status: by API version, kind,
/// namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadReference {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadRebalancerStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed_workloads: Vec<ObservedWorkload>,
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObservedWorkload {
    pub workload: WorkloadReference,
    /// Empty while pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

pub const REBALANCE_SUCCESSFUL: &str = "Successful";
pub const REBALANCE_FAILED: &str = "Failed";
/// The only reason of a failure.
pub const REASON_BINDING_NOT_FOUND: &str = "ReferencedBindingNotFound";
