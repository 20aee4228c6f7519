//! Typed view of FederatedResourceQuota (`policy.karmada.io/v1alpha1`).

use std::collections::BTreeMap;

use machinery::Quantity;
use serde::{Deserialize, Serialize};

/// Amounts by resource name.
pub type QuotaResourceList = BTreeMap<String, Quantity>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FederatedResourceQuota {
    pub spec: FederatedResourceQuotaSpec,
    pub status: FederatedResourceQuotaStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FederatedResourceQuotaSpec {
    pub overall: QuotaResourceList,
    pub static_assignments: Vec<StaticClusterAssignment>,
}

impl FederatedResourceQuotaSpec {
    /// The limits that are statically assigned to a cluster, if any.
    pub fn static_assignment(&self, cluster: &str) -> Option<&QuotaResourceList> {
        let mut assigned = self.static_assignments.iter();
        assigned
            .find(|a| a.cluster_name == cluster)
            .and_then(|a| a.hard.as_ref())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StaticClusterAssignment {
    pub cluster_name: String,
    pub hard: Option<QuotaResourceList>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FederatedResourceQuotaStatus {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overall: QuotaResourceList,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overall_used: QuotaResourceList,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggregated_status: Vec<ClusterQuotaStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQuotaStatus {
    pub cluster_name: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: QuotaResourceList,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub used: QuotaResourceList,
}
