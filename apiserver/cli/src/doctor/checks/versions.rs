//! The check of versions: of this command, the server, agents, and members' Kubernetes.

use crate::doctor::observations::ControlPlaneObservations;
use crate::doctor::report::{CheckResult, CheckResults};

/// The separator before Flotilla's own version in `gitVersion`.
const FLOTILLA_SUFFIX: &str = "+flotilla.";
/// Members' Kubernetes versions that are tested.
const OLDEST_KUBERNETES: (u32, u32) = (1, 20);
const NEWEST_KUBERNETES: (u32, u32) = (1, 36);

pub(super) fn check_versions(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    let mut results = CheckResults::new("versions");
    match &observations.server_version {
        Err(reason) => results.unknown(
            format!("the version of the server cannot be read: {reason}"),
            "run the command as a user who may get /version",
        ),
        Ok(version) => match version.split_once(FLOTILLA_SUFFIX) {
            Some((_, server)) => check_flotilla(&mut results, observations, server),
            None => results.unknown(
                format!(
                    "{} is a host that runs {version}; Flotilla's version is not known",
                    observations.server
                ),
                "ask Flotilla itself",
            ),
        },
    }
    for member in observations.members.iter().flatten() {
        let Some(version) = member.kubernetes_version() else {
            continue;
        };
        check_kubernetes(&mut results, &member.name, version);
    }
    results.or_well(format!(
        "command, server, agents and members have versions that fit (Flotilla {})",
        observations.client_version
    ))
}

fn check_flotilla(
    results: &mut CheckResults,
    observations: &ControlPlaneObservations,
    server: &str,
) {
    let client = &observations.client_version;
    if server != client {
        results.warn(
            format!("this command is Flotilla {client}, the server {server}"),
            "use the command of the server's version",
        );
    }
    for (cluster, lease) in observations.leases.iter().flatten() {
        if let Some(agent) = lease.agent_version.as_deref()
            && agent != server
        {
            results.warn(
                format!("the agent of {cluster} is Flotilla {agent}, the server {server}"),
                "give the agent the server's version; upgrade the server first",
            );
        }
    }
}

fn check_kubernetes(results: &mut CheckResults, cluster: &str, version: &str) {
    let Some(numbers) = major_and_minor(version) else {
        return results.unknown(
            format!("cluster {cluster} runs Kubernetes {version:?}, which cannot be read"),
            "compare it with the versions that are tested, v1.20 to v1.36",
        );
    };
    let text = |(major, minor): (u32, u32)| format!("v{major}.{minor}");
    if numbers < OLDEST_KUBERNETES {
        results.fail(
            format!(
                "cluster {cluster} runs Kubernetes {version}; the oldest tested version is {}",
                text(OLDEST_KUBERNETES)
            ),
            "upgrade the member",
        );
    } else if numbers > NEWEST_KUBERNETES {
        results.warn(
            format!(
                "cluster {cluster} runs Kubernetes {version}; the newest tested version is {}",
                text(NEWEST_KUBERNETES)
            ),
            "upgrade Flotilla",
        );
    }
}

fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version
        .trim_start_matches('v')
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}
