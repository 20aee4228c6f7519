//! Starts the controllers of this crate.

use flotilla_runtime::ControllerContext;
use karmada_api::KarmadaFeature;

use crate::options::ClusterControllersOptions;
use crate::{
    agent_certificates, cluster, credential_expiry, failover, remedy, status, taint_policy,
};

/// Starts what an agent runs: the report of its cluster's status, and the check of its
/// certificate.
pub fn start_agent(context: &ControllerContext, options: &ClusterControllersOptions) {
    credential_expiry::start_agent_check(context, options);
    status::start(context, options);
}

/// Starts the controllers; they stop with the tasks of the context.
pub fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
    agent_certificates::start(context, options);
    credential_expiry::start(context);
    cluster::start(context, options);
    status::start(context, options);
    remedy::RemedyController::start(context);
    failover::start(context, options);
    if options.settings.gates.enabled(KarmadaFeature::Failover) {
        taint_policy::ClusterTaintPolicyController::start(context);
    }
}
