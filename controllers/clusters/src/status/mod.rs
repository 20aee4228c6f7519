//! The cluster status controller: writes the health, version, APIs and resources of a
//! member into its Cluster's status.
//!
//! Karmada: `pkg/controllers/status/cluster_status_controller.go`,
//! `cluster_condition_cache.go`.

mod cluster_status;
mod controller;
mod metrics;
mod probe;
pub(crate) mod ready_thresholds;
mod sync_state;

use crate::options::ClusterControllersOptions;
use flotilla_runtime::ControllerContext;

pub(crate) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
    controller::ClusterStatusController::start(context, options);
}

#[cfg(test)]
mod tests;
