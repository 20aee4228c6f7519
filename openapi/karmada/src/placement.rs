//! `Placement`: to which clusters a policy propagates resources, and how replicas are
//! divided. It is stored as an annotation too, so it serializes exactly as in Go.

use serde::{Deserialize, Serialize};

use super::affinity::ClusterAffinity;
use super::cluster::Taint;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<Toleration>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread_constraints: Vec<SpreadConstraint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaSchedulingStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

impl Placement {
    /// Whether the placement selects no cluster on purpose.
    pub fn is_nowhere(&self) -> bool {
        let mut terms = self.cluster_affinities.iter();
        match &self.cluster_affinity {
            Some(affinity) => affinity.is_nowhere(),
            None => {
                !self.cluster_affinities.is_empty() && terms.all(|term| term.affinity.is_nowhere())
            }
        }
    }

    /// Restricts the placement to some clusters.
    pub fn restrict_to(&mut self, names: &[String]) {
        for term in &mut self.cluster_affinities {
            term.affinity.restrict(names);
            for overflow in &mut term.overflow_affinities {
                overflow.affinity.restrict(names);
            }
        }
        if self.cluster_affinities.is_empty() {
            self.cluster_affinity
                .get_or_insert_default()
                .restrict(names);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAffinityTerm {
    pub affinity_name: String,
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overflow_affinities: Vec<OverflowClusterAffinityTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverflowClusterAffinityTerm {
    pub affinity_name: String,
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// `ToleratesTaint` of the core API.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        effect && key && value
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub spread_by_field: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub spread_by_label: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub max_groups: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub min_groups: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSchedulingStrategy {
    /// `Duplicated` or `Divided`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replica_scheduling_type: String,
    /// `Aggregated` or `Weighted`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replica_division_preference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPreferences {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// `AvailableReplicas` or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dynamic_weight: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StaticClusterWeight {
    pub target_cluster: ClusterAffinity,
    pub weight: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadAffinityTerm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinityTerm {
    pub group_by_label_key: String,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_encoding_is_that_of_go() {
        let text = r#"{"clusterAffinity":{"clusterNames":["member1","member2"]},"clusterTolerations":[{"key":"cluster.karmada.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"replicaScheduling":{"replicaSchedulingType":"Divided","replicaDivisionPreference":"Weighted","weightPreference":{"staticWeightList":[{"targetCluster":{"clusterNames":["member1"]},"weight":1}]}}}"#;
        let placement: Placement = machinery::json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&placement).unwrap(), text);
        let term = r#"{"clusterAffinities":[{"affinityName":"a","clusterNames":["m"],"overflowAffinities":[{"affinityName":"b"}]}]}"#;
        let placement: Placement = machinery::json::from_str(term).unwrap();
        assert_eq!(serde_json::to_string(&placement).unwrap(), term);
    }

    fn nowhere() -> Value {
        json!({"labelSelector": {"matchExpressions": [{"key": "flotilla.io/nowhere", "operator": "Exists"}]}})
    }

    // proves: SCH-nowhere, DET-namespace-gate
    #[test]
    fn a_placement_is_restricted_to_clusters() {
        let term = |mut affinity: Value| {
            affinity["affinityName"] = "x".into();
            json!([affinity])
        };
        let names = |list: &[&str]| json!({"clusterNames": list});
        for (placement, allowed, expected, is_nowhere) in [
            (
                json!({}),
                &["a", "b"][..],
                json!({"clusterAffinity": names(&["a", "b"])}),
                false,
            ),
            (
                json!({"clusterAffinity": names(&["b", "c"])}),
                &["a", "b"],
                json!({"clusterAffinity": names(&["b"])}),
                false,
            ),
            (
                json!({"clusterAffinity": names(&["c"])}),
                &["a"],
                json!({"clusterAffinity": nowhere()}),
                true,
            ),
            (json!({}), &[], json!({"clusterAffinity": nowhere()}), true),
            (
                json!({"clusterAffinities": term(names(&["b", "c"]))}),
                &["b"],
                json!({"clusterAffinities": term(names(&["b"]))}),
                false,
            ),
            (
                json!({"clusterAffinities": term(names(&["c"]))}),
                &["b"],
                json!({"clusterAffinities": term(nowhere())}),
                true,
            ),
        ] {
            let mut restricted: Placement = serde_json::from_value(placement.clone()).unwrap();
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            restricted.restrict_to(&allowed);
            assert_eq!(restricted.is_nowhere(), is_nowhere, "{placement}");
            let actual = serde_json::to_value(&restricted).unwrap();
            assert_eq!(actual, expected, "{placement}");
        }
    }
}
