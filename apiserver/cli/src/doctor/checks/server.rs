//! Checks of the server itself: whether it is ready, its clock, its disk and its webhooks.

use jiff::SignedDuration;

use super::missing_input::without_metrics;
use crate::doctor::metric_samples::MetricSamples;
use crate::doctor::observations::{ControlPlaneObservations, HttpAnswer};
use crate::doctor::report::{CheckResult, CheckResults};

const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);
/// With a larger difference tokens are refused and leases of agents expire.
const HARMFUL_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(60);
const GIBIBYTE: f64 = (1_u64 << 30) as f64;
/// Free space of the data directory below which to warn: of the capacity, and in bytes.
const LOW_FREE_FRACTION: f64 = 0.05;
const LOW_FREE_BYTES: f64 = GIBIBYTE;
const EXHAUSTED_FREE_BYTES: f64 = GIBIBYTE / 8.0;
/// An etcd has at most 8 GiB.
const LARGE_STORE_BYTES: f64 = 6.0 * GIBIBYTE;

pub(super) fn check_api_server(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    let mut results = CheckResults::new("api-server");
    let server = &observations.server;
    match &observations.readiness {
        Err(reason) => results.fail(
            format!("{server} does not answer: {reason}"),
            "check that it runs, and the address and authority in the kubeconfig",
        ),
        Ok(answer) if answer.code == 401 => results.fail(
            format!("{server} refuses the credentials of the kubeconfig"),
            "get a kubeconfig with valid credentials",
        ),
        Ok(answer) if answer.code == 403 => results.unknown(
            format!("{server} answers; the user may not get /readyz"),
            "run the command as a user with the ClusterRole system:monitoring",
        ),
        Ok(answer) if answer.code != 200 => fail_readiness(&mut results, server, answer),
        Ok(_) => {}
    }
    if observations.lacks_karmada_api() {
        results.fail(
            format!("{server} is not a control plane: it does not serve cluster.karmada.io"),
            "use the kubeconfig of Flotilla, or of the API server that it is installed behind",
        );
    }
    results.or_well(format!("{server} answers and is ready"))
}

fn fail_readiness(results: &mut CheckResults, server: &str, answer: &HttpAnswer) {
    let failed = answer.body.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("[-]")?.split_once(" failed")?;
        Some(name)
    });
    let failed: Vec<&str> = failed.collect();
    let remedy = "read its log, which has the reason";
    if failed.is_empty() {
        let code = answer.code;
        return results.fail(
            format!("{server} is not ready: /readyz answers {code}"),
            remedy,
        );
    }
    for check in failed {
        results.fail(
            format!("{server} is not ready: its check {check} fails"),
            remedy,
        );
    }
}

pub(super) fn check_clock(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    let mut results = CheckResults::new("clock");
    let server = observations.readiness.as_ref().ok();
    let Some(server_ahead) = server.and_then(HttpAnswer::clock_ahead) else {
        results.unknown(
            "the server's answer has no date",
            "ask the server without a proxy in between",
        );
        return results.or_well("");
    };
    report_difference(&mut results, "the server", "this machine", server_ahead);
    let members = observations.members.as_deref().unwrap_or_default();
    for member in members {
        let answer = member.answer.as_ref().ok().filter(|a| a.code < 500);
        if let Some(ahead) = answer.and_then(HttpAnswer::clock_ahead) {
            let ahead = ahead.checked_sub(server_ahead).unwrap_or(ahead);
            let subject = format!("member {}", member.name);
            report_difference(&mut results, &subject, "the server", ahead);
        }
    }
    results.or_well("the clocks agree")
}

fn report_difference(
    results: &mut CheckResults,
    subject: &str,
    reference: &str,
    ahead: SignedDuration,
) {
    let side = match ahead.is_negative() {
        true => "behind",
        false => "ahead of",
    };
    let seconds = ahead.abs().as_secs();
    let message = format!("the clock of {subject} is {seconds} s {side} that of {reference}");
    let remedy = "synchronize the clocks, for example with chrony";
    if ahead.abs() > HARMFUL_CLOCK_DIFFERENCE {
        results.fail(message, remedy);
    } else if ahead.abs() > MAX_CLOCK_DIFFERENCE {
        results.warn(message, remedy);
    }
}

pub(super) fn check_disk(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "disk";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for fault in metrics.of("flotilla_store_fault") {
        if fault.value > 0.0 {
            results.fail(
                format!("the store cannot write (fault {})", fault.label("fault")),
                "free or repair the disk below the data directory; the log has the error",
            );
        }
    }
    check_free_space(&mut results, metrics);
    let sizes = metrics.of("apiserver_storage_size_bytes");
    let size = sizes.map(|sample| sample.value).fold(0.0, f64::max);
    if size > LARGE_STORE_BYTES {
        results.warn(
            format!("the store takes {}", gibibytes(size)),
            "delete what is not needed; an etcd takes no writes at its quota, at most 8 GiB",
        );
    }
    let free = match metrics.value("flotilla_data_dir_free_bytes") {
        Some(free) => format!(", {} are free in the data directory", gibibytes(free)),
        None => String::new(),
    };
    results.or_well(format!("the store takes {}{free}", gibibytes(size)))
}

fn check_free_space(results: &mut CheckResults, metrics: &MetricSamples) {
    let (Some(free), Some(capacity)) = (
        metrics.value("flotilla_data_dir_free_bytes"),
        metrics.value("flotilla_data_dir_capacity_bytes"),
    ) else {
        return;
    };
    let message = format!(
        "{} of {} are free in the data directory",
        gibibytes(free),
        gibibytes(capacity)
    );
    let remedy = "free space or enlarge the volume; without space nothing can be written";
    if free < EXHAUSTED_FREE_BYTES {
        results.fail(message, remedy);
    } else if free < LOW_FREE_BYTES || free < capacity * LOW_FREE_FRACTION {
        results.warn(message, remedy);
    }
}

fn gibibytes(bytes: f64) -> String {
    format!("{:.2} GiB", bytes / GIBIBYTE)
}

/// Failures are counted since the server started.
pub(super) fn check_webhooks(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "webhooks";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    let remedy =
        "check the webhook's service, certificate and timeout, or delete its configuration";
    let rejections = metrics.of("apiserver_admission_webhook_rejection_count");
    let failed_calls = rejections.filter(|s| s.label("error_type") != "no_error");
    for sample in failed_calls.filter(|sample| sample.value > 0.0) {
        let (name, count) = (sample.label("name"), sample.value);
        let message = format!(
            "{count} {} requests were rejected because the admission webhook {name} failed",
            sample.label("operation")
        );
        results.warn(message, remedy);
    }
    let ignored = metrics.of("apiserver_admission_webhook_fail_open_count");
    for sample in ignored.filter(|sample| sample.value > 0.0) {
        let (name, count) = (sample.label("name"), sample.value);
        let message = format!(
            "the admission webhook {name} failed {count} times and was ignored by its failure policy"
        );
        results.warn(message, remedy);
    }
    results.or_well("no call of an admission webhook has failed")
}
