//! Starts the controllers of failover.

use openapi::karmada::KarmadaFeature;

use super::application::ApplicationFailoverController;
use super::auto_failover::AutoFailoverController;
use super::graceful::GracefulEvictionController;
use super::no_execute::NoExecuteTaintManager;
use crate::bindings::BindingClient;
use crate::context::ClusterControllersContext;

pub(crate) fn start(deps: &ClusterControllersContext, bindings: &BindingClient) {
    let (gates, options) = (deps.options.gates, &deps.options.failover);
    if gates.enabled(KarmadaFeature::Failover)
        && options.taint_manager
        && options.no_execute_taint_eviction
    {
        NoExecuteTaintManager::start(deps, bindings);
    }
    if gates.enabled(KarmadaFeature::GracefulEviction) {
        GracefulEvictionController::start(deps, bindings);
    }
    ApplicationFailoverController::start(deps, bindings);
    AutoFailoverController::start(deps, bindings);
}
