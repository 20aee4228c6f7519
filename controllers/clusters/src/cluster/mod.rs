//! The cluster controller: execution space, taints, finalizer and deletion of a Cluster,
//! and the health of clusters in pull mode.
//!
//! Karmada: `pkg/controllers/cluster/cluster_controller.go`.

mod agent_registration;
mod condition_taints;
mod controller;
mod health;
mod monitor;

use crate::bindings::BindingClient;
use crate::context::ClusterControllersContext;

pub(crate) use condition_taints::taints_message;

pub(crate) fn start(deps: &ClusterControllersContext, bindings: &BindingClient) {
    controller::ClusterController::start(deps, bindings);
    monitor::ClusterMonitor::start(deps);
}

#[cfg(test)]
mod tests;
