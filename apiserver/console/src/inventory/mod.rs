//! The clusters, bindings and rollouts that the user may list, as small rows that reflectors keep up
//! to date.
//!
//! server ──list, watch──► [`projection::Projection`] of Clusters, bindings and Rollouts ──► [`Inventory`] ──► pages

mod cluster_row;
mod projection;
mod workload_row;

use std::collections::HashMap;
use std::sync::Arc;

use client::{Api, ListWatchSelector, TaskGroup, run_reflector};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS};
use karmada_api::rollout::ROLLOUTS;
use machinery::Gvr;
use tokio::sync::watch;

pub(crate) use cluster_row::{ClusterRow, ResourceShare};
pub(crate) use projection::ObjectKey;
use projection::{Projection, ProjectionSink};
pub(crate) use workload_row::{RolloutRow, WorkloadHealth, WorkloadRow};

pub(crate) struct Inventory {
    clusters: Arc<Projection<ClusterRow>>,
    bindings: Arc<Projection<WorkloadRow>>,
    cluster_bindings: Arc<Projection<WorkloadRow>>,
    rollouts: Arc<Projection<RolloutRow>>,
    changes: watch::Sender<u64>,
}

/// The templates of a cluster and their replicas there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterLoad {
    pub(crate) workloads: usize,
    pub(crate) replicas: i64,
}

impl Inventory {
    pub(crate) fn start(api: &Arc<dyn Api>, tasks: &TaskGroup) -> Self {
        let changes = watch::Sender::new(0);
        Self {
            clusters: reflect(api, tasks, &changes, &CLUSTERS, |object, _| {
                ClusterRow::new(object)
            }),
            bindings: reflect(api, tasks, &changes, &BINDINGS, WorkloadRow::new),
            cluster_bindings: reflect(api, tasks, &changes, &CLUSTER_BINDINGS, WorkloadRow::new),
            rollouts: reflect(api, tasks, &changes, &ROLLOUTS, |object, _| {
                RolloutRow::new(object)
            }),
            changes,
        }
    }

    /// Counts the changes of all rows.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn version(&self) -> u64 {
        *self.changes.borrow()
    }

    /// All clusters by name.
    pub(crate) fn clusters(&self) -> Vec<Arc<ClusterRow>> {
        self.clusters.read(|rows| rows.values().cloned().collect())
    }

    /// Calls `visit` with each workload, by namespace and name of its binding; those without a namespace
    /// come first.
    pub(crate) fn visit_workloads(&self, mut visit: impl FnMut(&ObjectKey, &Arc<WorkloadRow>)) {
        for projection in [&self.cluster_bindings, &self.bindings] {
            projection.read(|rows| rows.iter().for_each(|(key, row)| visit(key, row)));
        }
    }

    pub(crate) fn workload(&self, key: &ObjectKey) -> Option<Arc<WorkloadRow>> {
        let projection = match key.0.is_empty() {
            true => &self.cluster_bindings,
            false => &self.bindings,
        };
        projection.read(|rows| rows.get(key).cloned())
    }

    /// The name of the template of a binding; that of the binding until it is listed.
    pub(crate) fn template_name(&self, key: &ObjectKey) -> String {
        let row = self.workload(key);
        row.map_or_else(|| key.1.clone(), |row| row.name.to_string())
    }

    /// The rollout of the template of a binding.
    pub(crate) fn rollout(&self, key: &ObjectKey) -> Option<Arc<RolloutRow>> {
        self.rollouts.read(|rows| rows.get(key).cloned())
    }

    pub(crate) fn loads(&self) -> HashMap<Arc<str>, ClusterLoad> {
        let mut loads: HashMap<Arc<str>, ClusterLoad> = HashMap::new();
        self.visit_workloads(|_, row| {
            for (cluster, replicas) in &row.targets {
                let load = loads.entry(Arc::clone(cluster)).or_default();
                load.workloads += 1;
                load.replicas = load.replicas.saturating_add(*replicas);
            }
        });
        loads
    }

    /// Why parts of the inventory are missing, or that they are still being read.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let remarks = [
            self.clusters.remark("clusters"),
            self.bindings.remark("resourcebindings"),
            self.cluster_bindings.remark("clusterresourcebindings"),
            self.rollouts.remark("rollouts"),
        ];
        remarks.into_iter().flatten().collect()
    }
}

/// Starts a reflector of a resource.
fn reflect<T: Send + Sync + 'static>(
    api: &Arc<dyn Api>,
    tasks: &TaskGroup,
    changes: &watch::Sender<u64>,
    resource: &Gvr,
    project: projection::ProjectFunc<T>,
) -> Arc<Projection<T>> {
    let projection = Arc::new(Projection::default());
    let mut sink = ProjectionSink::new(Arc::clone(&projection), changes.clone(), project);
    let (api, shutdown) = (Arc::clone(api), tasks.shutdown().clone());
    let selector = ListWatchSelector::all(resource);
    tasks.spawn(async move {
        run_reflector(&*api, &selector, &mut sink, &shutdown).await;
    });
    projection
}
