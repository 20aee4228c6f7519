//! Checks of members: whether they answer and are ready, the leases and tunnels of agents.

use jiff::SignedDuration;

use super::missing_input::{without_clusters, without_metrics};
use crate::doctor::observations::{ControlPlaneObservations, ObservedMember};
use crate::doctor::report::{CheckResult, CheckResults};

/// How long a lease lasts that does not say so.
const DEFAULT_LEASE: SignedDuration = SignedDuration::from_secs(40);

pub(super) fn check_members(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "members";
    let members = match &observations.members {
        Ok(members) => members,
        Err(reason) => return without_clusters(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for member in members {
        check_ready(&mut results, member);
        check_answer(&mut results, member);
    }
    results.or_well(match members.len() {
        0 => "no cluster is registered".to_owned(),
        1 => "the cluster is ready".to_owned(),
        n => format!("all {n} clusters are ready"),
    })
}

fn check_ready(results: &mut CheckResults, member: &ObservedMember) {
    let name = &member.name;
    let Some(condition) = member.condition("Ready") else {
        return results.warn(
            format!("cluster {name} has no condition Ready"),
            match member.is_pull() {
                true => "check that its agent runs",
                false => "check that the controllers of the control plane run, and read their log",
            },
        );
    };
    if condition["status"] == "True" {
        return;
    }
    let text = |key: &str| condition[key].as_str().unwrap_or_default();
    let remedy = match (text("reason"), member.is_pull()) {
        ("ClusterNotReady", _) => "look at the checks of its /readyz",
        (_, true) => "check that its agent runs and reaches the control plane",
        (_, false) => "check its API server and the network to it",
    };
    results.fail(
        format!(
            "cluster {name} is not ready: {} ({})",
            text("message"),
            text("reason")
        ),
        remedy,
    );
}

/// A cluster in pull mode may have no way from the control plane; its tunnel is a check of
/// its own.
fn check_answer(results: &mut CheckResults, member: &ObservedMember) {
    let name = &member.name;
    match &member.answer {
        Ok(answer) if answer.code == 401 => results.fail(
            format!("cluster {name} refuses the credentials of the control plane"),
            "write a valid token into its Secret, or join the cluster again",
        ),
        Ok(answer) if answer.code >= 500 && !member.is_pull() => results.fail(
            format!(
                "cluster {name} answers {} through the proxy: {}",
                answer.code, answer.body
            ),
            match answer.body.contains("impersonator") {
                true => {
                    "the Secret of its impersonator is missing or invalid; join the cluster again"
                }
                false => "check its API server and the network to it",
            },
        ),
        Err(reason) if !member.is_pull() => results.fail(
            format!("cluster {name} does not answer through the proxy: {reason}"),
            "check its API server and the network to it",
        ),
        Ok(_) | Err(_) => {}
    }
}

pub(super) fn check_agent_leases(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "agent-leases";
    let members = match &observations.members {
        Ok(members) => members,
        Err(reason) => return without_clusters(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    let leases = match &observations.leases {
        Ok(leases) => leases,
        Err(reason) => {
            results.unknown(
                format!("the leases of agents cannot be listed: {reason}"),
                "run the command as a user who may list leases in karmada-cluster",
            );
            return results.or_well("");
        }
    };
    let remedy = "check that the agent runs and reaches the control plane";
    for member in members.iter().filter(|member| member.is_pull()) {
        let name = &member.name;
        let lease = leases.get(name);
        let Some(renewed) = lease.and_then(|lease| lease.renewed) else {
            results.warn(format!("the agent of {name} has no lease"), remedy);
            continue;
        };
        let lasts = lease.and_then(|lease| lease.lasts).unwrap_or(DEFAULT_LEASE);
        let age = observations.server_time().duration_since(renewed);
        if age > lasts {
            let seconds = age.as_secs();
            results.fail(
                format!("the agent of {name} renewed its lease {seconds} s ago"),
                remedy,
            );
        }
    }
    results.or_well("the agents renew their leases")
}

pub(super) fn check_tunnels(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "tunnels";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for sample in metrics.of("flotilla_agent_tunnels") {
        if sample.value == 0.0 {
            let cluster = sample.label("member_cluster");
            results.warn(
                format!("the agent of {cluster} has lost its tunnel"),
                "read the log of the agent; logs and exec do not reach the cluster, propagation does",
            );
        }
    }
    results.or_well("no agent has lost its tunnel")
}
