//! Starts the enabled controllers.

use std::sync::LazyLock;

use flotilla_runtime::ControllerContext;

use crate::AutoscalerOptions;
use crate::cron_federated_hpa::CronFederatedHpaController;
use crate::deployment_replicas_syncer::DeploymentReplicasSyncer;
use crate::federated_hpa::FederatedHpaController;
use crate::hpa_scale_target_marker::HpaScaleTargetMarker;
use crate::metrics::{CRON_FEDERATED_HPA_METRICS, FEDERATED_HPA_METRICS};

/// Starts the enabled controllers; they stop with the tasks of the context.
pub async fn start(context: &ControllerContext, options: &AutoscalerOptions) {
    if options.enabled.federated_hpa {
        LazyLock::force(&FEDERATED_HPA_METRICS);
        FederatedHpaController::start(context, options).await;
    }
    if options.enabled.cron_federated_hpa {
        LazyLock::force(&CRON_FEDERATED_HPA_METRICS);
        CronFederatedHpaController::start(context).await;
    }
    if options.enabled.scale_target_marker {
        HpaScaleTargetMarker::start(context).await;
    }
    if options.enabled.replicas_syncer {
        DeploymentReplicasSyncer::start(context).await;
    }
}
