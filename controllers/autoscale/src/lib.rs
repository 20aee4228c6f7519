//! Controllers for workloads whose replicas an autoscaler in the members decides.
//!
//! HorizontalPodAutoscaler ──[`hpa_scale_target_marker`]──► label `resourcetemplate.karmada.io/retain-replicas` on its target
//! Deployment with that label + status of its binding ──[`deployment_replicas_syncer`]──► `spec.replicas` of the Deployment
//!
//! Decisions are pure functions, and a controller writes only differences. As in Karmada, neither
//! controller runs unless it is enabled.
//!
//! Entry points: [`start`], [`HpaControllersContext`], [`EnabledHpaControllers`].

mod deployment_replicas_syncer;
mod hpa_scale_target_marker;
mod startup;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use client::Api;
use flotilla_runtime::InformerFactory;
use machinery::Gvr;

pub use startup::start;

static AUTOSCALERS: Gvr = Gvr::from_static("autoscaling", "v2", "horizontalpodautoscalers");
static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");

/// The dependencies of the controllers.
pub struct HpaControllersContext {
    /// The API server with templates and bindings.
    pub control_plane: Arc<dyn Api>,
    /// The informers on `control_plane`.
    pub informers: InformerFactory,
    pub options: EnabledHpaControllers,
}

/// Which controllers run; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnabledHpaControllers {
    /// Enables `hpaScaleTargetMarker`.
    pub scale_target_marker: bool,
    /// Enables `deploymentReplicasSyncer`.
    pub replicas_syncer: bool,
}
