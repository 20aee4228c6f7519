//! Starts the controllers of this crate.

use openapi::karmada::KarmadaFeature;

use crate::bindings::BindingClient;
use crate::context::ClusterControllersContext;
use crate::{cluster, failover, remedy, status, taint_policy};

/// Starts the controllers; they stop with the given tasks.
pub fn start(deps: ClusterControllersContext) {
    let bindings = BindingClient::new(&deps);
    cluster::start(&deps, &bindings);
    status::start(&deps);
    remedy::RemedyController::start(&deps);
    failover::startup::start(&deps, &bindings);
    if deps.options.gates.enabled(KarmadaFeature::Failover) {
        taint_policy::ClusterTaintPolicyController::start(&deps);
    }
}
