//! View of ResourceBinding and ClusterResourceBinding (`work.karmada.io/v1alpha2`).

use std::collections::{BTreeMap, BTreeSet};

use machinery::Gvk;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failover::DIRECTLY;
use super::placement::Placement;
use super::policy::Suspension;

/// Reason of the condition `Scheduled` where the host runs the template itself. Not
/// Karmada's, which has no such case.
pub const HOST_RUNS_WORKLOADS: &str = "HostRunsWorkloads";

/// Both kinds of binding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Binding {
    pub metadata: Metadata,
    pub spec: BindingSpec,
    pub status: BindingStatus,
}

/// The part of a head that the shared one does not keep.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub annotations: BTreeMap<String, String>,
    pub finalizers: Vec<String>,
    pub generation: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingSpec {
    pub resource: ObjectReference,
    pub propagate_deps: bool,
    pub replica_requirements: Option<Value>,
    pub replicas: i64,
    pub components: Vec<Component>,
    pub clusters: Vec<TargetCluster>,
    pub placement: Option<Placement>,
    pub graceful_eviction_tasks: Vec<EvictionTask>,
    pub required_by: Vec<BindingSnapshot>,
    pub scheduler_name: String,
    pub failover: Option<Value>,
    pub conflict_resolution: String,
    pub preserve_resources_on_deletion: Option<bool>,
    pub reschedule_triggered_at: Option<String>,
    pub suspension: Option<Suspension>,
    pub schedule_priority: Option<Priority>,
    pub workload_affinity_groups: Option<AffinityGroups>,
}

impl Binding {
    /// Whether it was last said that the host keeps the template for itself.
    pub fn is_refused(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|c| c.kind == "Scheduled" && c.reason == HOST_RUNS_WORKLOADS)
    }
}

impl BindingSpec {
    /// Whether replicas are to be placed, and not merely an object.
    pub fn is_workload(&self) -> bool {
        self.replicas > 0 || self.replica_requirements.is_some() || !self.components.is_empty()
    }

    /// Everywhere the resource shall be: the schedule's result and the clusters of
    /// those who need it; the first mention of a cluster counts.
    pub fn targets(&self) -> Vec<&TargetCluster> {
        let mut targets: Vec<&TargetCluster> = Vec::new();
        for cluster in self
            .clusters
            .iter()
            .chain(self.required_by.iter().flat_map(|b| &b.clusters))
        {
            if !targets.iter().any(|t| t.name == cluster.name) {
                targets.push(cluster);
            }
        }
        targets
    }

    /// Everywhere a copy is meant to be: targets, and what is evicted but not purged
    /// at once.
    pub fn existing_clusters(&self) -> BTreeSet<&str> {
        let targets = self.targets().into_iter().map(|t| &*t.name);
        let evicted = self.graceful_eviction_tasks.iter();
        let kept = evicted.filter(|t| !t.purges_directly());
        targets.chain(kept.map(|t| &*t.from_cluster)).collect()
    }

    /// Where a copy has to be gone before others are made or changed.
    pub fn purged_clusters(&self) -> BTreeSet<&str> {
        let evicted = self.graceful_eviction_tasks.iter();
        let purged = evicted.filter(|t| t.purges_directly());
        purged.map(|t| &*t.from_cluster).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

impl ObjectReference {
    pub fn gvk(&self) -> Gvk {
        Gvk::from_api_version(&self.api_version, &self.kind)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetCluster {
    pub name: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<TargetComponent>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetComponent {
    pub name: String,
    pub replicas: i64,
}

/// A part of a workload with a pod template of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Component {
    pub name: String,
    pub replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<Value>,
}

/// `key=value` of the groups that a workload is kept together with, or apart from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinityGroups {
    pub affinity_group: String,
    pub anti_affinity_group: String,
}

/// `GracefulEvictionTask`; the fields in Go's order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionTask {
    pub from_cluster: String,
    /// `Directly`, `Gracefully` or `Never`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub purge_mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub producer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// Whether the copy stays until somebody says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_deletion: Option<bool>,
    /// Labels for the copy that takes its place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub preserved_label_state: BTreeMap<String, String>,
    /// Absent until the graceful eviction controller has seen it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters_before_failover: Vec<String>,
}

impl EvictionTask {
    pub fn purges_directly(&self) -> bool {
        self.purge_mode == DIRECTLY
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingSnapshot {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<TargetCluster>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Priority {
    pub priority: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BindingStatus {
    pub scheduler_observed_generation: i64,
    #[serde(rename = "schedulerObservingAffinityName")]
    pub observed_affinity: String,
    pub last_scheduled_time: Option<String>,
    pub conditions: Vec<Condition>,
    pub aggregated_status: Vec<AggregatedItem>,
}

/// `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    pub last_transition_time: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregatedItem {
    pub cluster_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub applied: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub applied_message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}
