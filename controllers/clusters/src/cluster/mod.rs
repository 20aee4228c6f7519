//! The cluster controller: execution space, taints, finalizer and deletion of a Cluster,
//! and the health of clusters in pull mode.
//!
//! Karmada: `pkg/controllers/cluster/cluster_controller.go`.

mod condition_taints;
mod controller;
mod health;
mod monitor;

use crate::bindings::BindingStore;
use crate::context::ClustersContext;

pub(crate) use condition_taints::taints_message;

pub(crate) fn start(deps: &ClustersContext, bindings: &BindingStore) {
    controller::ClusterController::start(deps, bindings);
    monitor::ClusterMonitor::start(deps);
}

#[cfg(test)]
mod tests;
