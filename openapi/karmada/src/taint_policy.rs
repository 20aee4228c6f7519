//! Typed view of ClusterTaintPolicy (`policy.karmada.io/v1alpha1`).

use serde::Deserialize;

use super::affinity::ClusterAffinity;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClusterTaintPolicy {
    pub spec: ClusterTaintPolicySpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterTaintPolicySpec {
    /// Absent: all clusters.
    pub target_clusters: Option<ClusterAffinity>,
    pub add_on_conditions: Vec<MatchCondition>,
    pub remove_on_conditions: Vec<MatchCondition>,
    pub taints: Vec<PolicyTaint>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MatchCondition {
    pub condition_type: String,
    /// `In` or `NotIn`.
    pub operator: String,
    pub status_values: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PolicyTaint {
    pub key: String,
    pub effect: String,
    pub value: String,
}
