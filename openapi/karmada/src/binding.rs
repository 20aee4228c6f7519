//! Typed views of ResourceBinding and ClusterResourceBinding (`work.karmada.io/v1alpha2`).

use std::collections::{BTreeMap, BTreeSet};

use machinery::Gvk;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object_meta::is_zero;
use super::placement::Placement;
use super::policy::Suspension;
use super::purge_mode::PURGE_MODE_DIRECTLY;

pub use super::object_meta::{Condition, KarmadaObjectMeta};

/// Reason of the condition `Scheduled` if the host cluster itself runs the workload of the
/// template, which is therefore not propagated. Karmada has no such case.
pub const HOST_RUNS_WORKLOADS: &str = "HostRunsWorkloads";

/// Reason of the condition `Scheduled` if the placement selects no cluster on purpose. Karmada says
/// `NoClusterFit`.
pub const PLACED_NOWHERE: &str = "PlacedNowhere";

/// A ResourceBinding or ClusterResourceBinding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceBinding {
    pub metadata: KarmadaObjectMeta,
    pub spec: ResourceBindingSpec,
    pub status: ResourceBindingStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingSpec {
    pub resource: ObjectReference,
    pub propagate_deps: bool,
    pub replica_requirements: Option<Value>,
    pub replicas: i64,
    pub components: Vec<Component>,
    pub clusters: Vec<TargetCluster>,
    pub placement: Option<Placement>,
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
    pub required_by: Vec<BindingSnapshot>,
    pub scheduler_name: String,
    pub failover: Option<Value>,
    pub conflict_resolution: String,
    pub preserve_resources_on_deletion: Option<bool>,
    pub reschedule_triggered_at: Option<String>,
    pub suspension: Option<Suspension>,
    pub schedule_priority: Option<BindingSchedulePriority>,
    pub workload_affinity_groups: Option<WorkloadAffinityGroups>,
}

impl ResourceBinding {
    /// Whether the condition `Scheduled` says that the host cluster runs the workload.
    pub fn runs_on_host(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|c| c.condition_type == "Scheduled" && c.reason == HOST_RUNS_WORKLOADS)
    }

    /// Whether a reschedule was triggered after the last decision. Timestamps have seconds: a trigger
    /// in the second of the decision counts if no decision has observed this generation. Karmada
    /// misses those.
    pub fn is_reschedule_triggered(&self) -> bool {
        let status = &self.status;
        // RFC 3339 in UTC with seconds sorts as text in time order.
        match (
            &self.spec.reschedule_triggered_at,
            &status.last_scheduled_time,
        ) {
            (Some(triggered), Some(last)) if triggered == last => {
                status.scheduler_observed_generation < self.metadata.generation
            }
            (Some(triggered), Some(last)) => triggered > last,
            _ => false,
        }
    }
}

impl ResourceBindingSpec {
    /// Whether the resource has replicas or components to schedule.
    pub fn is_workload(&self) -> bool {
        self.replicas > 0 || self.replica_requirements.is_some() || !self.components.is_empty()
    }

    /// Whether replicas are divided among the clusters.
    pub fn is_divided(&self) -> bool {
        let placement = self.placement.as_ref();
        let scheduling = placement.and_then(|placement| placement.replica_scheduling.as_ref());
        let is_divided = scheduling.is_some_and(|s| s.replica_scheduling_type == "Divided");
        is_divided && self.is_workload() && self.components.is_empty()
    }

    /// Whether these clusters have all replicas of the resource.
    pub fn assigns_all_replicas(&self, clusters: &[TargetCluster]) -> bool {
        let mut replicas = clusters.iter().map(|target| target.replicas);
        match self.is_divided() {
            true => replicas.sum::<i64>() == self.replicas,
            false => !self.is_workload() || replicas.all(|count| count == self.replicas),
        }
    }

    /// All clusters to which the resource is propagated: the scheduled ones, and the clusters of
    /// bindings that require it. If a cluster has several entries, the first one counts.
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

    /// All clusters that have the resource: the targets, and those of eviction tasks that do
    /// not purge directly (`ObtainBindingSpecExistingClusters`).
    pub fn existing_clusters(&self) -> BTreeSet<&str> {
        let targets = self.targets().into_iter().map(|t| &*t.name);
        let evicted = self.graceful_eviction_tasks.iter();
        let remaining = evicted.filter(|t| !t.purges_directly());
        targets.chain(remaining.map(|t| &*t.from_cluster)).collect()
    }

    /// The clusters from which the resource must be deleted before it is created or changed in
    /// other clusters.
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

    /// Whether a binding may name this template: a ResourceBinding those of its own namespace, a
    /// ClusterResourceBinding those without one. `namespaced` is the scope of the template's kind.
    /// The error has no field path.
    pub fn check_scope(&self, binding_namespace: &str, namespaced: bool) -> Result<(), String> {
        if self.namespace != binding_namespace {
            return Err(match binding_namespace {
                "" => "must be empty in a ClusterResourceBinding".to_owned(),
                own => format!("must be the namespace of the binding ({own})"),
            });
        }
        match (namespaced, binding_namespace) {
            (true, "") => Err("is required for a namespaced kind".to_owned()),
            (false, own) if !own.is_empty() => {
                let kind = &self.kind;
                Err(format!(
                    "must be empty: {kind} is a cluster-scoped kind, which only a ClusterResourceBinding may name"
                ))
            }
            _ => Ok(()),
        }
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

/// A component of a workload, with its own pod template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Component {
    pub name: String,
    pub replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<Value>,
}

/// The `key=value` groups with which a workload is scheduled together or apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAffinityGroups {
    pub affinity_group: String,
    pub anti_affinity_group: String,
}

/// `GracefulEvictionTask`, with the fields in Go's order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GracefulEvictionTask {
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
    /// Whether the resource is kept in the cluster until this is reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_deletion: Option<bool>,
    /// Labels for the resource in the cluster that replaces this one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub preserved_label_state: BTreeMap<String, String>,
    /// Absent until the graceful eviction controller sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters_before_failover: Vec<String>,
}

impl GracefulEvictionTask {
    pub fn purges_directly(&self) -> bool {
        self.purge_mode == PURGE_MODE_DIRECTLY
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
pub struct BindingSchedulePriority {
    pub priority: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceBindingStatus {
    pub scheduler_observed_generation: i64,
    #[serde(rename = "schedulerObservingAffinityName")]
    pub observed_affinity: String,
    pub last_scheduled_time: Option<String>,
    pub conditions: Vec<Condition>,
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregatedStatusItem {
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
