//! The checks of a doctor: observations in, results out.

mod certificates;
mod controllers;
mod members;
mod missing_input;
mod server;
mod versions;
mod works;

use super::observations::ControlPlaneObservations;
use super::report::CheckResult;

/// Judges all observations. A server that does not answer, or is another one, is one result, beside
/// what is known without it.
pub(super) fn run_checks(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    let mut results = server::check_api_server(observations);
    results.extend(certificates::check_user_credentials(observations));
    if observations.readiness.is_err() || observations.lacks_karmada_api() {
        return results;
    }
    let checks: [fn(&ControlPlaneObservations) -> Vec<CheckResult>; 14] = [
        certificates::check_server_certificates,
        certificates::check_member_credentials,
        certificates::check_agent_certificates,
        members::check_members,
        members::check_agent_leases,
        members::check_tunnels,
        works::check_works,
        controllers::check_propagation,
        controllers::check_queues,
        controllers::check_watches,
        server::check_webhooks,
        server::check_clock,
        server::check_disk,
        versions::check_versions,
    ];
    results.extend(checks.iter().flat_map(|check| check(observations)));
    results
}

#[cfg(test)]
mod tests;
