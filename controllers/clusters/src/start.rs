//! Starts the controllers of this crate.

use openapi::karmada::KarmadaFeature;

use crate::bindings::BindingClient;
use crate::context::ClusterControllersContext;
use crate::{
    agent_certificates, cluster, credential_expiry, failover, remedy, status, taint_policy,
};

/// Starts what an agent runs: the report of its cluster's status, and the check of its
/// certificate.
pub fn start_agent(deps: ClusterControllersContext) {
    credential_expiry::start_agent_check(&deps);
    status::start(&deps);
}

/// Starts the controllers; they stop with the given tasks.
pub fn start(deps: ClusterControllersContext) {
    let bindings = BindingClient::new(&deps);
    agent_certificates::start(&deps);
    credential_expiry::start(&deps);
    cluster::start(&deps, &bindings);
    status::start(&deps);
    remedy::RemedyController::start(&deps);
    failover::startup::start(&deps, &bindings);
    if deps.options.gates.enabled(KarmadaFeature::Failover) {
        taint_policy::ClusterTaintPolicyController::start(&deps);
    }
}
