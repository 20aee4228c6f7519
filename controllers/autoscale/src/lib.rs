//! Controllers for workloads whose replicas an autoscaler in the members decides.
//!
//! HorizontalPodAutoscaler ──[`hpa_scale_target_marker`]──► label `resourcetemplate.karmada.io/retain-replicas` on its target
//! Deployment with that label + status of its binding ──[`deployment_replicas_syncer`]──► `spec.replicas` of the Deployment
//!
//! Decisions are pure functions, and a controller writes only differences. As in Karmada, neither
//! controller runs unless it is enabled.
//!
//! Entry points: [`start`], [`AutoscaleDeps`], [`Options`].

mod marker;
mod replicas;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use client::Api;
use machinery::Gvr;
use flotilla_runtime::{Informers, Tasks};

static AUTOSCALERS: Gvr = Gvr::constant("autoscaling", "v2", "horizontalpodautoscalers");
static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");

/// The dependencies of the controllers.
pub struct Deps {
    /// The API server with templates and bindings.
    pub control: Arc<dyn Api>,
    /// The informers on `control`.
    pub informers: Informers,
    pub options: Options,
}

/// Which controllers run; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Enables `hpaScaleTargetMarker`.
    pub scale_target_marker: bool,
    /// Enables `deploymentReplicasSyncer`.
    pub replicas_syncer: bool,
}

/// Starts the enabled controllers; they stop with `tasks`.
pub async fn start(deps: &Deps, tasks: &Tasks) {
    if deps.options.scale_target_marker {
        marker::Marker::start(deps, tasks).await;
    }
    if deps.options.replicas_syncer {
        replicas::Syncer::start(deps, tasks).await;
    }
}
