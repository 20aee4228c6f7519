//! Typed view of KubeFed's ReplicaSchedulingPreference (`scheduling.kubefed.io/v1alpha1`), and
//! what a binding records of it.
//!
//! The detector writes the spec into an annotation of the binding, so that a decision and its
//! explanation depend on the binding alone. Sources: KubeFed v0.10's
//! `pkg/apis/scheduling/v1alpha1` and `pkg/schedulingtypes/replicascheduler.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::binding::ResourceBinding;
use super::object_meta::is_zero;
use super::placement::{Placement, ReplicaSchedulingStrategy};
use super::well_known_keys::{OBSERVED_CAPACITY, REPLICA_PREFERENCE};

/// The group of KubeFed's scheduling preferences.
pub const KUBEFED_SCHEDULING_GROUP: &str = "scheduling.kubefed.io";
/// The key of the preferences about the clusters that are not named.
pub const OTHER_CLUSTERS: &str = "*";
/// The prefix of the kinds that KubeFed made of others.
const FEDERATED_PREFIX: &str = "Federated";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSchedulingPreference {
    pub spec: ReplicaSchedulingPreferenceSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSchedulingPreferenceSpec {
    pub target_kind: String,
    pub total_replicas: i64,
    /// Whether replicas that run may move.
    #[serde(skip_serializing_if = "is_false")]
    pub rebalance: bool,
    /// Whether the policy's placement decides about the clusters too.
    #[serde(skip_serializing_if = "is_false")]
    pub intersect_with_cluster_selector: bool,
    /// By name or [`OTHER_CLUSTERS`]; if empty, all clusters have weight 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clusters: BTreeMap<String, ClusterReplicaPreference>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterReplicaPreference {
    #[serde(skip_serializing_if = "is_zero")]
    pub min_replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i64>,
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: i64,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The kind of the templates that a target kind means: `FederatedDeployment` is `Deployment`.
pub fn template_kind(target_kind: &str) -> &str {
    let kind = target_kind.strip_prefix(FEDERATED_PREFIX);
    kind.filter(|kind| !kind.is_empty()).unwrap_or(target_kind)
}

impl ReplicaSchedulingPreferenceSpec {
    /// Whether the preference is about templates of a kind.
    pub fn targets(&self, kind: &str) -> bool {
        template_kind(&self.target_kind) == kind
    }

    /// The preference about a cluster; `None` if the cluster gets no replicas.
    pub fn for_cluster(&self, cluster: &str) -> Option<ClusterReplicaPreference> {
        if self.clusters.is_empty() {
            return Some(ClusterReplicaPreference {
                weight: 1,
                ..ClusterReplicaPreference::default()
            });
        }
        let named = self.clusters.get(cluster);
        named.or_else(|| self.clusters.get(OTHER_CLUSTERS)).copied()
    }

    /// The placement of a binding whose policy has `placement`: its replicas are divided, and
    /// without intersection the preference alone selects clusters.
    #[must_use]
    pub fn effective_placement(&self, placement: &Placement) -> Placement {
        let mut effective = Placement {
            replica_scheduling: Some(ReplicaSchedulingStrategy {
                replica_scheduling_type: "Divided".into(),
                replica_division_preference: "Weighted".into(),
                weight_preference: None,
            }),
            ..placement.clone()
        };
        if !self.intersect_with_cluster_selector {
            effective.cluster_affinity = None;
            effective.cluster_affinities.clear();
            effective.spread_constraints.clear();
        }
        effective
    }
}

/// The preference that a binding records, with the capacities that were observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedReplicaPreference {
    pub spec: ReplicaSchedulingPreferenceSpec,
    /// The replicas that a cluster can run, by cluster; a cluster without an entry has no limit.
    pub capacity: BTreeMap<String, i64>,
}

impl RecordedReplicaPreference {
    /// `None` if the binding has none, or one that cannot be read.
    pub fn from_binding(binding: &ResourceBinding) -> Option<Self> {
        let annotations = &binding.metadata.annotations;
        let spec = annotations.get(REPLICA_PREFERENCE)?;
        let capacity = annotations.get(OBSERVED_CAPACITY);
        let capacity = capacity.and_then(|text| machinery::json::from_str(text).ok());
        Some(Self {
            spec: machinery::json::from_str(spec).ok()?,
            capacity: capacity.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: RSP-target
    #[test]
    fn a_target_kind_is_that_of_the_template_or_of_its_federated_kind() {
        for (target, kind, expected) in [
            ("FederatedDeployment", "Deployment", true),
            ("Deployment", "Deployment", true),
            ("FederatedStatefulSet", "Deployment", false),
            ("Federated", "Federated", true),
            ("Federated", "", false),
            ("FederatedX", "X", true),
        ] {
            let spec = ReplicaSchedulingPreferenceSpec {
                target_kind: target.into(),
                ..ReplicaSchedulingPreferenceSpec::default()
            };
            assert_eq!(spec.targets(kind), expected, "{target} {kind}");
        }
    }

    // proves: RSP-clusters, RSP-intersect
    #[test]
    fn clusters_are_those_of_the_preference_and_with_intersection_those_of_the_placement() {
        let spec =
            |value| serde_json::from_value::<ReplicaSchedulingPreferenceSpec>(value).unwrap();
        let weight = |spec: &ReplicaSchedulingPreferenceSpec, cluster: &str| {
            spec.for_cluster(cluster).map(|c| c.weight)
        };
        let named = spec(json!({"clusters": {"a": {"weight": 2}}}));
        assert_eq!([weight(&named, "a"), weight(&named, "b")], [Some(2), None]);
        let others = spec(json!({"clusters": {"a": {"weight": 2}, "*": {"weight": 3}}}));
        assert_eq!(
            [weight(&others, "a"), weight(&others, "b")],
            [Some(2), Some(3)]
        );
        assert_eq!(weight(&spec(json!({})), "a"), Some(1));

        let placement: Placement = serde_json::from_value(json!({
            "clusterAffinity": {"clusterNames": ["a"]},
            "clusterTolerations": [{"operator": "Exists"}],
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
        }))
        .unwrap();
        let effective = |spec: &ReplicaSchedulingPreferenceSpec| {
            serde_json::to_value(spec.effective_placement(&placement)).unwrap()
        };
        let divided =
            json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"});
        assert_eq!(
            effective(&named),
            json!({"clusterTolerations": [{"operator": "Exists"}], "replicaScheduling": divided})
        );
        let mut expected = serde_json::to_value(&placement).unwrap();
        expected["replicaScheduling"] = divided;
        let both = spec(json!({"intersectWithClusterSelector": true}));
        assert_eq!(effective(&both), expected);
    }
}
