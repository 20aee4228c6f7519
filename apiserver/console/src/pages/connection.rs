//! How the control plane and a cluster reach each other: the tunnel of an agent, and when credentials
//! expire.

use client::ResourcePath;
use jiff::{SignedDuration, Timestamp};
use machinery::Gvr;
use machinery::time::rfc3339_seconds;
use maud::{Markup, html};

use super::markup::{badge, counted};
use crate::console::Console;
use crate::inventory::{ClusterRow, ReportedState};

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
/// The namespace of the leases that agents renew.
const LEASE_NAMESPACE: &str = "karmada-cluster";
/// How long before the end an expiry is a warning.
const WARNING_PERIOD: SignedDuration = SignedDuration::from_hours(30 * 24);
const UNKNOWN: &str = "unknown";

/// Whether the agent of a cluster has a tunnel. The metric is newer than the condition, which says since
/// when.
pub(super) fn tunnel(console: &Console, cluster: &ClusterRow) -> Markup {
    if !cluster.is_pull {
        return html! { span .muted { "not needed" } };
    }
    let open = console.metrics.connection(&cluster.name).tunnels;
    let reported = cluster.tunnel.as_ref();
    let is_connected = open
        .map(|count| count > 0)
        .or(reported.map(|state| state.is_true));
    let Some(is_connected) = is_connected else {
        return html! { span .muted { (UNKNOWN) } };
    };
    let reported = reported.filter(|state| state.is_true == is_connected);
    html! {
        @if is_connected { (badge("good", "Connected")) } @else { (badge("bad", "Not connected")) }
        @if let Some(state) = reported { " " span .muted title=(state.message) { "since " (state.since) } }
    }
}

/// When the first credential of the connection expires, as far as metrics and conditions say so.
pub(super) fn certificate(console: &Console, cluster: &ClusterRow, now: Timestamp) -> Markup {
    let expiry = console.metrics.connection(&cluster.name).expiry;
    let expiry = expiry.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let warnings = [&cluster.credentials, &cluster.agent_certificate];
    let warning = warnings.into_iter().flatten().find(|state| !state.is_true);
    html! {
        @match (warning, expiry) {
            (Some(warning), _) => { (badge("warn", "Expires")) " " span .muted { (warning.message) } }
            (None, Some(expiry)) => (expiry_text(expiry, now)),
            (None, None) => span .muted { (reassurance(cluster)) },
        }
    }
}

/// A condition that is true was false before.
fn reassurance(cluster: &ClusterRow) -> &'static str {
    let reports = [&cluster.credentials, &cluster.agent_certificate];
    let is_valid = |state: &ReportedState| state.is_true;
    match reports.into_iter().flatten().any(is_valid) {
        true => "does not expire soon",
        false => UNKNOWN,
    }
}

fn expiry_text(expiry: Timestamp, now: Timestamp) -> Markup {
    let left = expiry.duration_since(now);
    let days = usize::try_from(left.as_hours() / 24).unwrap_or(0);
    let date = expiry.strftime("%Y-%m-%d").to_string();
    html! {
        @if left <= SignedDuration::ZERO {
            (badge("bad", "Expired")) " "
        } @else if left < WARNING_PERIOD {
            (badge("warn", &format!("{} left", counted(days, "day")))) " "
        }
        span .nowrap title=(rfc3339_seconds(expiry)) { (date) }
    }
}

/// When the agent of a cluster has last renewed its lease; unknown to those who may not read it.
pub(super) async fn last_heartbeat(console: &Console, cluster: &str) -> String {
    let at = ResourcePath::object(&LEASES, LEASE_NAMESPACE, cluster);
    let lease = console.api.get(at).await.ok();
    let lease = lease.and_then(|lease| lease.value().ok());
    let renewed = lease
        .as_ref()
        .and_then(|lease| lease["spec"]["renewTime"].as_str());
    let renewed = renewed.and_then(|text| machinery::time::parse(text).ok());
    renewed.map_or_else(|| UNKNOWN.to_owned(), rfc3339_seconds)
}
