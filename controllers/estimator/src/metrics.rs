//! Metrics of local estimates under the names of Karmada's estimator
//! (`pkg/estimator/server/metrics`), and of calls to remote estimators.

use std::sync::LazyLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Histogram, ResultHistograms, exponential_buckets};

/// The extension point of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EstimatorExtensionPoint {
    Replicas,
    Components,
}

/// The plugin that estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EstimatorPluginName {
    Nodes,
    Quotas,
}

/// By extension point, and by success or failure.
struct EstimatorMetrics {
    requests: [[Counter; 2]; 2],
    algorithm: [[Histogram; 2]; 2],
    points: [Histogram; 2],
    /// By plugin and point.
    plugins: [[Histogram; 2]; 2],
}

const REQUEST_TYPES: [&str; 2] = ["MaxAvailableReplicas", "MaxAvailableComponentSets"];
const EXTENSION_POINTS: [&str; 2] = ["estimate_replicas", "estimate_components"];
const PLUGINS: [&str; 2] = ["NodeResourceEstimator", "ResourceQuotaEstimator"];
const RESULTS: [&str; 2] = ["success", "error"];

static METRICS: LazyLock<EstimatorMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    let requests = of.counters(
        "karmada_scheduler_estimator_estimating_request_total",
        "Number of local estimates.",
        ["result", "type"],
    );
    let algorithm = of.histograms(
        "karmada_scheduler_estimator_estimating_algorithm_duration_seconds",
        "Duration of a local estimate.",
        &exponential_buckets(0.001, 2.0, 10),
        ["result", "type", "step"],
    );
    let points = of.histograms(
        "karmada_scheduler_estimator_estimating_plugin_extension_point_duration_seconds",
        "Duration of all plugins of an estimate.",
        &exponential_buckets(0.0001, 2.0, 12),
        ["estimating_plugin_extension_point"],
    );
    let plugins = of.histograms(
        "karmada_scheduler_estimator_estimating_plugin_execution_duration_seconds",
        "Duration of one plugin of an estimate.",
        &exponential_buckets(0.00001, 1.5, 20),
        ["estimating_plugin", "estimating_plugin_extension_point"],
    );
    EstimatorMetrics {
        requests: REQUEST_TYPES
            .map(|kind| RESULTS.map(|result| requests.with_label_values([result, kind]))),
        algorithm: REQUEST_TYPES
            .map(|kind| RESULTS.map(|result| algorithm.with_label_values([result, kind, "Total"]))),
        points: EXTENSION_POINTS.map(|point| points.with_label_values([point])),
        plugins: PLUGINS
            .map(|plugin| EXTENSION_POINTS.map(|point| plugins.with_label_values([plugin, point]))),
    }
});

static CALL_DURATIONS: LazyLock<ResultHistograms> = LazyLock::new(|| {
    ResultHistograms::new(
        flotilla_metrics::process_registry(),
        "flotilla_scheduler_estimator_call_duration_seconds",
        "Duration of calls to the estimators of clusters.",
        &exponential_buckets(0.001, 2.0, 13),
    )
});

/// Registers all metrics, including those without a value yet.
pub(crate) fn register() {
    LazyLock::force(&METRICS);
    LazyLock::force(&CALL_DURATIONS);
}

/// Records a local estimate, successful or not.
pub(crate) fn record_estimate(point: EstimatorExtensionPoint, took: Duration, success: bool) {
    let (at, result) = (point as usize, usize::from(!success));
    METRICS.requests[at][result].inc();
    METRICS.algorithm[at][result].observe(took.as_secs_f64());
    METRICS.points[at].observe(took.as_secs_f64());
}

pub(crate) fn record_plugin(
    plugin: EstimatorPluginName,
    point: EstimatorExtensionPoint,
    took: Duration,
) {
    METRICS.plugins[plugin as usize][point as usize].observe(took.as_secs_f64());
}

/// Records a call to the estimator of a cluster.
pub(crate) fn record_call(took: Duration, success: bool) {
    CALL_DURATIONS.observe(took, success);
}
