//! Checks of what expires: certificates and tokens of the user, the server, members and agents.

use jiff::{SignedDuration, Timestamp};

use super::missing_input::{without_clusters, without_metrics};
use crate::doctor::observations::ControlPlaneObservations;
use crate::doctor::report::{CheckResult, CheckResults};

/// How long before the end to warn.
const WARNING_PERIOD: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Reports what has expired or is about to.
fn check_expiry(
    results: &mut CheckResults,
    subject: &str,
    expires: Timestamp,
    now: Timestamp,
    remedy: &str,
) {
    let left = expires.duration_since(now);
    if !left.is_positive() {
        results.fail(format!("{subject} expired at {expires}"), remedy);
    } else if left < WARNING_PERIOD {
        let days = left.as_hours() / 24;
        results.warn(
            format!("{subject} expires at {expires}, in {days} days"),
            remedy,
        );
    }
}

pub(super) fn check_user_credentials(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    let mut results = CheckResults::new("user-credentials");
    for credential in &observations.user_credentials {
        check_expiry(
            &mut results,
            &format!("the {} in the kubeconfig", credential.kind),
            credential.expires,
            observations.now,
            "get a new kubeconfig",
        );
    }
    results.or_well(match observations.user_credentials.len() {
        0 => "the kubeconfig has no credential that expires",
        _ => "the credentials in the kubeconfig are valid for more than 30 days",
    })
}

pub(super) fn check_server_certificates(
    observations: &ControlPlaneObservations,
) -> Vec<CheckResult> {
    const CHECK: &str = "server-certificates";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for sample in metrics.of("flotilla_certificate_expiration_timestamp_seconds") {
        if let Ok(expires) = Timestamp::from_second(sample.value as i64) {
            let subject = format!("the certificate {}", sample.label("certificate"));
            let remedy = "replace the operator's files; Flotilla renews its own certificates earlier, and its log has the reason if not";
            check_expiry(
                &mut results,
                &subject,
                expires,
                observations.server_time(),
                remedy,
            );
        }
    }
    results.or_well("the certificates of the server are valid for more than 30 days")
}

pub(super) fn check_member_credentials(
    observations: &ControlPlaneObservations,
) -> Vec<CheckResult> {
    const CHECK: &str = "member-credentials";
    let members = match &observations.members {
        Ok(members) => members,
        Err(reason) => return without_clusters(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for member in members {
        let condition = member.condition("CredentialsValid");
        if let Some(condition) = condition.filter(|c| c["status"] == "False") {
            let message = condition["message"].as_str().unwrap_or_default();
            results.warn(
                format!("cluster {}: {message}", member.name),
                "write new credentials into its Secret, or join the cluster again",
            );
        }
    }
    for sample in observations
        .metrics
        .iter()
        .flat_map(|metrics| metrics.of("flotilla_cluster_credential_expiration_timestamp_seconds"))
    {
        // The condition has told of the others.
        let expired = sample.value <= observations.server_time().as_second() as f64;
        if expired && let Ok(expires) = Timestamp::from_second(sample.value as i64) {
            let (cluster, credential) =
                (sample.label("member_cluster"), sample.label("credential"));
            results.fail(
                format!("cluster {cluster}: {credential} expired at {expires}"),
                "write a new one into its Secret",
            );
        }
    }
    results.or_well("no credential of a member expires within 30 days")
}

pub(super) fn check_agent_certificates(
    observations: &ControlPlaneObservations,
) -> Vec<CheckResult> {
    const CHECK: &str = "agent-certificates";
    let members = match &observations.members {
        Ok(members) => members,
        Err(reason) => return without_clusters(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for member in members {
        let condition = member.condition("AgentCertificateValid");
        if let Some(condition) = condition.filter(|c| c["status"] == "False") {
            let message = condition["message"].as_str().unwrap_or_default();
            results.warn(
                format!("agent of cluster {}: {message}", member.name),
                "start the agent with --enable-cert-rotation, or register the cluster again",
            );
        }
    }
    results.or_well("no certificate of an agent is about to expire")
}
