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
//! Entry points: [`start`], [`AutoscalersContext`], [`EnabledAutoscalers`],
//! [`FederatedHpaSettings`].

mod cron_federated_hpa;
mod deployment_replicas_syncer;
mod federated_hpa;
#[cfg(test)]
mod fixture;
mod hpa_scale_target_marker;
mod metrics;
mod scale_target;
mod startup;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use client::{Api, InformerFactory};
use flotilla_runtime::EventRecorder;
use machinery::Gvr;
use machinery::time::Clock;
use members::MemberAccess;

pub use federated_hpa::FederatedHpaSettings;
pub use startup::start;

static AUTOSCALERS: Gvr = Gvr::from_static("autoscaling", "v2", "horizontalpodautoscalers");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");

/// The dependencies of the controllers.
#[derive(Clone)]
pub struct AutoscalersContext {
    /// The API server with templates and bindings.
    pub control_plane: Arc<dyn Api>,
    pub members: Arc<dyn MemberAccess>,
    pub clock: Arc<dyn Clock>,
    pub recorder: EventRecorder,
    /// The informers on `control_plane`.
    pub informers: InformerFactory,
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
