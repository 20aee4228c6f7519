//! Starts the enabled controllers.

use std::sync::LazyLock;

use client::TaskGroup;

use super::AutoscalersContext;
use crate::cron_federated_hpa::CronFederatedHpaController;
use crate::federated_hpa::FederatedHpaController;
use crate::metrics::{CRON_FEDERATED_HPA_METRICS, FEDERATED_HPA_METRICS};
use crate::{deployment_replicas_syncer, hpa_scale_target_marker};

/// Starts the enabled controllers; they stop with `tasks`.
pub async fn start(deps: &AutoscalersContext, tasks: &TaskGroup) {
    if deps.enabled.federated_hpa {
        LazyLock::force(&FEDERATED_HPA_METRICS);
        FederatedHpaController::start(deps, tasks).await;
    }
    if deps.enabled.cron_federated_hpa {
        LazyLock::force(&CRON_FEDERATED_HPA_METRICS);
        CronFederatedHpaController::start(deps, tasks).await;
    }
    if deps.enabled.scale_target_marker {
        hpa_scale_target_marker::HpaScaleTargetMarker::start(deps, tasks).await;
    }
    if deps.enabled.replicas_syncer {
        deployment_replicas_syncer::DeploymentReplicasSyncer::start(deps, tasks).await;
    }
}
