//! Controllers that scale workloads: at scheduled times, and as autoscalers in the members do.
//!
//! FederatedHPA + metrics of its pods in all members ──[`federated_hpa`]──► scale of its target
//! CronFederatedHPA + its schedules ──[`cron_federated_hpa`]──► scale of its target, or bounds of a FederatedHPA
//! HorizontalPodAutoscaler ──[`hpa_scale_target_marker`]──► label `resourcetemplate.karmada.io/retain-replicas` on its target
//! Deployment with that label + status of its binding ──[`deployment_replicas_syncer`]──► `spec.replicas` of the Deployment
//!
//! Decisions are pure functions, and a controller writes only differences. As in Karmada, the last
//! two run only if they are enabled.
//!
//! Entry points: [`start`], [`AutoscalerOptions`], [`EnabledAutoscalers`],
//! [`FederatedHpaSettings`].

mod cron_federated_hpa;
mod deployment_replicas_syncer;
#[cfg(test)]
mod example_controller;
mod federated_hpa;
#[cfg(test)]
mod fixture;
mod hpa_scale_target_marker;
mod metrics;
mod scale_target;
mod start;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use machinery::Gvr;
use members::MemberAccess;

pub use federated_hpa::FederatedHpaSettings;
pub use start::start;

static AUTOSCALERS: Gvr = Gvr::from_static("autoscaling", "v2", "horizontalpodautoscalers");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");

/// What the controllers work with beside their context.
#[derive(Clone)]
pub struct AutoscalerOptions {
    pub members: Arc<dyn MemberAccess>,
    pub enabled: EnabledAutoscalers,
    pub federated_hpa: FederatedHpaSettings,
}

/// Which controllers run. The default is Karmada's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledAutoscalers {
    /// Enables `federatedHorizontalPodAutoscaler`.
    pub federated_hpa: bool,
    /// Enables `cronFederatedHorizontalPodAutoscaler`.
    pub cron_federated_hpa: bool,
    /// Enables `hpaScaleTargetMarker`.
    pub scale_target_marker: bool,
    /// Enables `deploymentReplicasSyncer`.
    pub replicas_syncer: bool,
}

impl Default for EnabledAutoscalers {
    fn default() -> Self {
        Self {
            federated_hpa: true,
            cron_federated_hpa: true,
            scale_target_marker: false,
            replicas_syncer: false,
        }
    }
}
