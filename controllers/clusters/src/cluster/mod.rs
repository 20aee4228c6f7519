//! The cluster controller: execution space, taints, finalizer and deletion of a Cluster,
//! and the health of clusters in pull mode.
//!
//! Karmada: `pkg/controllers/cluster/cluster_controller.go`.

mod agent_registration;
mod condition_taints;
mod controller;
mod health;
mod monitor;

use crate::options::ClusterControllersOptions;
use flotilla_runtime::ControllerContext;

pub(crate) use condition_taints::taints_message;

pub(crate) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
    controller::ClusterController::start(context, options);
    monitor::ClusterMonitor::start(context, options);
}

#[cfg(test)]
mod tests;
