//! Converts a ReplicaSchedulingPreference to the replica scheduling of a policy.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Value, json};

use super::cluster_set::ClusterSet;
use super::fields;
use super::inventory::object_text;
use crate::convert::conversion::{Conversion, Severity};

const ANY_CLUSTER: &str = "*";

/// Replicas by cluster.
pub(super) struct ReplicaDivision {
    pub(super) total: i64,
    /// The clusters that may have replicas.
    pub(super) clusters: ClusterSet,
    /// Whether the object's own selector decides too.
    pub(super) intersects: bool,
    /// The value of `placement.replicaScheduling`.
    pub(super) scheduling: Value,
}

/// Reads a preference. Cluster without preferences share evenly, as do all without a list.
pub(super) fn convert(
    preference: &Value,
    conversion: &mut Conversion,
) -> anyhow::Result<ReplicaDivision> {
    let text = object_text(preference);
    let spec = &preference["spec"];
    let total = spec["totalReplicas"].as_i64();
    let total = total.context("spec.totalReplicas: must be a number")?;
    let mut weights: BTreeMap<&str, i64> = BTreeMap::new();
    let preferences = fields::object(&spec["clusters"], "spec.clusters")?;
    for (cluster, replicas) in preferences.into_iter().flatten() {
        let entry = format!("spec.clusters[{cluster}]");
        fields::object(replicas, &entry)?;
        for field in ["minReplicas", "maxReplicas"] {
            if !replicas[field].is_null() && replicas[field] != 0 {
                let field = format!("{entry}.{field}");
                let message = "a policy divides replicas by weight only; write a FederatedHPA or a policy for this cluster";
                conversion.report(Severity::Loss, &text, &field, message);
            }
        }
        let weight = fields::integer(&replicas["weight"], &format!("{entry}.weight"))?;
        weights.insert(cluster, weight.unwrap_or_default());
    }
    if weights.is_empty() {
        weights.insert(ANY_CLUSTER, 1);
    }
    if fields::boolean(&spec["rebalance"], "spec.rebalance")? {
        let message = "replicas that stay unschedulable move if the descheduler is on: flotilla addons enable karmada-descheduler";
        conversion.report(Severity::Note, &text, "spec.rebalance", message);
    }
    let intersects = &spec["intersectWithClusterSelector"];
    Ok(ReplicaDivision {
        total,
        clusters: clusters(&weights),
        intersects: fields::boolean(intersects, "spec.intersectWithClusterSelector")?,
        scheduling: json!({
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": static_weights(&weights)},
        }),
    })
}

/// The clusters with a weight.
fn clusters(weights: &BTreeMap<&str, i64>) -> ClusterSet {
    let named = || weights.iter().filter(|(name, _)| **name != ANY_CLUSTER);
    let others_have_weight = weights.get(ANY_CLUSTER).is_some_and(|weight| *weight > 0);
    if others_have_weight {
        let without = named().filter(|(_, weight)| **weight <= 0);
        return ClusterSet::all_but(without.map(|(name, _)| (*name).to_owned()));
    }
    let with = named().filter(|(_, weight)| **weight > 0);
    ClusterSet::of_names(with.map(|(name, _)| (*name).to_owned()))
}

/// A rule for each weight, and one for the clusters that are not named. The greatest weight of
/// all rules that match a cluster counts, so that rules must not overlap.
fn static_weights(weights: &BTreeMap<&str, i64>) -> Vec<Value> {
    let mut names_by_weight: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    let named = weights.iter().filter(|(name, _)| **name != ANY_CLUSTER);
    for (name, weight) in named.clone().filter(|(_, weight)| **weight > 0) {
        names_by_weight.entry(*weight).or_default().push(name);
    }
    let mut rules: Vec<Value> = names_by_weight
        .iter()
        .map(|(weight, names)| json!({"targetCluster": {"clusterNames": names}, "weight": weight}))
        .collect();
    if let Some(weight) = weights.get(ANY_CLUSTER).filter(|weight| **weight > 0) {
        let names: Vec<&&str> = named.map(|(name, _)| name).collect();
        let target = match names.as_slice() {
            [] => json!({}),
            names => json!({"exclude": names}),
        };
        rules.push(json!({"targetCluster": target, "weight": weight}));
    }
    rules
}
