//! Starts the enabled controllers.

use flotilla_runtime::TaskGroup;

use super::HpaControllersContext;
use crate::{deployment_replicas_syncer, hpa_scale_target_marker};

/// Starts the enabled controllers; they stop with `tasks`.
pub async fn start(deps: &HpaControllersContext, tasks: &TaskGroup) {
    if deps.options.scale_target_marker {
        hpa_scale_target_marker::HpaScaleTargetMarker::start(deps, tasks).await;
    }
    if deps.options.replicas_syncer {
        deployment_replicas_syncer::DeploymentReplicasSyncer::start(deps, tasks).await;
    }
}
