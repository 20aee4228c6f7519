//! Typed view of Remedy (`remedy.karmada.io/v1alpha1`).

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Remedy {
    pub spec: RemedySpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemedySpec {
    /// Absent: all clusters.
    pub cluster_affinity: Option<RemedyClusterAffinity>,
    /// Absent: the actions are always in effect.
    pub decision_matches: Option<Vec<DecisionMatch>>,
    pub actions: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemedyClusterAffinity {
    pub cluster_names: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionMatch {
    pub cluster_condition_match: Option<ClusterConditionRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterConditionRequirement {
    pub condition_type: String,
    /// `Equal` or `NotEqual`.
    pub operator: String,
    pub condition_status: String,
}
