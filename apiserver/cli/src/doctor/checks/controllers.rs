//! Checks of what controllers and watches have to do: lags, queues, terminated watches.

use std::collections::BTreeMap;

use super::missing_input::without_metrics;
use crate::doctor::metric_samples::MetricSamples;
use crate::doctor::observations::ControlPlaneObservations;
use crate::doctor::report::{CheckResult, CheckResults};

/// Beyond this lag one change in a hundred is slow, as in the alert.
const SLOW_SECONDS: f64 = 30.0;
/// With fewer changes a percentile means nothing.
const FEWEST_CHANGES: f64 = 100.0;
const DEEP_QUEUE: f64 = 1000.0;
const OLD_ITEM_SECONDS: f64 = 60.0;
const STUCK_ITEM_SECONDS: f64 = 600.0;
/// Watches that the server terminated in an hour, since it started.
const MANY_TERMINATED: f64 = 60.0;

/// The lag of propagation and of status, since the server started.
pub(super) fn check_propagation(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "propagation";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    for count in metrics.of("flotilla_propagation_lag_seconds_count") {
        let stage = count.label("stage");
        if count.value < FEWEST_CHANGES {
            continue;
        }
        let bound = slowest_hundredth(metrics, stage, count.value);
        if bound > SLOW_SECONDS {
            let bound = match bound.is_finite() {
                true => format!("up to {bound} s"),
                false => "very long".to_owned(),
            };
            results.warn(
                format!("the stage {stage} took {bound} for one change in a hundred"),
                "look at members that are slow, at failing reconciliations in the log, and at queues",
            );
        }
    }
    results.or_well("changes and status are propagated without lag")
}

/// The upper bound of the bucket in which the 99th percentile lies.
fn slowest_hundredth(metrics: &MetricSamples, stage: &str, count: f64) -> f64 {
    let buckets = metrics.of("flotilla_propagation_lag_seconds_bucket");
    let bounds = buckets.filter(|bucket| bucket.label("stage") == stage);
    let reached = bounds.filter(|bucket| bucket.value >= count * 0.99);
    let bounds = reached.filter_map(|bucket| bucket.label("le").parse().ok());
    bounds.fold(f64::INFINITY, f64::min)
}

pub(super) fn check_queues(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "queues";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    let depths: BTreeMap<&str, f64> = metrics
        .of("workqueue_depth")
        .map(|sample| (sample.label("name"), sample.value))
        .collect();
    for sample in metrics.of("flotilla_workqueue_oldest_item_age_seconds") {
        let (queue, age) = (sample.label("name"), sample.value);
        let depth = depths.get(queue).copied().unwrap_or_default();
        let message =
            format!("the oldest of {depth} items in the queue {queue} has waited for {age:.0} s");
        if age > STUCK_ITEM_SECONDS {
            results.fail(message, "read the log for what its workers wait for");
        } else if age > OLD_ITEM_SECONDS {
            results.warn(message, "look again in a minute; if it grows, read the log");
        }
    }
    for (queue, depth) in &depths {
        if *depth > DEEP_QUEUE {
            results.warn(
                format!("{depth} items wait in the queue {queue}"),
                "look again in a minute; if it grows, raise the number of workers",
            );
        }
    }
    let waiting: f64 = depths.values().sum();
    results.or_well(format!("{waiting} items wait in the queues of controllers"))
}

pub(super) fn check_watches(observations: &ControlPlaneObservations) -> Vec<CheckResult> {
    const CHECK: &str = "watches";
    let metrics = match &observations.metrics {
        Ok(metrics) => metrics,
        Err(reason) => return without_metrics(CHECK, reason),
    };
    let mut results = CheckResults::new(CHECK);
    let now = observations.server_time().as_second() as f64;
    let started = metrics.value("process_start_time_seconds").unwrap_or(now);
    // In the first hour the count itself is compared.
    let hours = ((now - started) / 3600.0).max(1.0);
    for sample in metrics.of("apiserver_terminated_watchers_total") {
        let per_hour = sample.value / hours;
        if per_hour > MANY_TERMINATED {
            results.warn(
                format!(
                    "{per_hour:.0} watches of {} an hour were ended because their clients fell behind",
                    sample.label("resource")
                ),
                "find the clients that read too slowly; each lists anew",
            );
        }
    }
    results.or_well("clients keep up with their watches")
}
