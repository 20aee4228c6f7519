//! Starts the controllers of failover.

use flotilla_runtime::ControllerContext;
use karmada_api::KarmadaFeature;

use super::application::ApplicationFailoverController;
use super::auto_failover::AutoFailoverController;
use super::graceful::GracefulEvictionController;
use super::no_execute::NoExecuteTaintManager;
use crate::options::ClusterControllersOptions;

pub(crate) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
    let (gates, failover) = (options.settings.gates, &options.settings.failover);
    if gates.enabled(KarmadaFeature::Failover)
        && failover.taint_manager
        && failover.no_execute_taint_eviction
    {
        NoExecuteTaintManager::start(context, options);
    }
    if gates.enabled(KarmadaFeature::GracefulEviction) {
        GracefulEvictionController::start(context, options);
    }
    ApplicationFailoverController::start(context, options);
    AutoFailoverController::start(context);
}
