//! The cluster status controller: writes the health, version, APIs and resources of a
//! member into its Cluster's status.
//!
//! Karmada: `pkg/controllers/status/cluster_status_controller.go`,
//! `cluster_condition_cache.go`.

mod cluster_status;
mod condition_cache;
mod controller;
mod metrics;
mod probe;
mod tracker;

use crate::context::ClustersContext;

pub(crate) fn start(deps: &ClustersContext) {
    controller::ClusterStatusController::start(deps);
}

#[cfg(test)]
mod tests;
