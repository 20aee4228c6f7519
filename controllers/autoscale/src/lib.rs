//! Workloads whose number of replicas somebody else decides.
//!
//! HorizontalPodAutoscaler ──[`marker`]──► label `retain-replicas` on its target
//! Deployment with that label + binding's status ──[`replicas`]──► `spec.replicas` of the Deployment
//!
//! Invariants: decisions are pure; a write happens only where something differs.
//! Neither controller runs unless it is asked for, as in Karmada.
//!
//! Entry points: [`start`], [`Deps`], [`Options`].

mod marker;
mod replicas;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use client::Api;
use machinery::Gvr;
use runtime::{Informers, Tasks};

static AUTOSCALERS: Gvr = Gvr::constant("autoscaling", "v2", "horizontalpodautoscalers");
static DEPLOYMENTS: Gvr = Gvr::constant("apps", "v1", "deployments");

/// What the controllers work with.
pub struct Deps {
    /// Templates and bindings.
    pub control: Arc<dyn Api>,
    /// Those of `control`.
    pub informers: Informers,
    pub options: Options,
}

/// Which controllers run; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `hpaScaleTargetMarker`
    pub scale_target_marker: bool,
    /// `deploymentReplicasSyncer`
    pub replicas_syncer: bool,
}

/// Starts the controllers that are asked for; they end with `tasks`.
pub async fn start(deps: &Deps, tasks: &Tasks) {
    if deps.options.scale_target_marker {
        marker::Marker::start(deps, tasks).await;
    }
    if deps.options.replicas_syncer {
        replicas::Syncer::start(deps, tasks).await;
    }
}
