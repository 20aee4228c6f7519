//! Metrics of local estimates under the names of Karmada's estimator
//! (`pkg/estimator/server/metrics`), and of calls to remote estimators.

use std::sync::LazyLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Histogram, Outcomes, exponential};

/// The extension point of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    Replicas,
    Components,
}

/// The plugin that estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plugin {
    Nodes,
    Quotas,
}

/// By extension point, and by success or failure.
struct Figures {
    requests: [[Counter; 2]; 2],
    algorithm: [[Histogram; 2]; 2],
    points: [Histogram; 2],
    /// By plugin and point.
    plugins: [[Histogram; 2]; 2],
}

const TYPES: [&str; 2] = ["MaxAvailableReplicas", "MaxAvailableComponentSets"];
const POINTS: [&str; 2] = ["estimate_replicas", "estimate_components"];
const PLUGINS: [&str; 2] = ["NodeResourceEstimator", "ResourceQuotaEstimator"];
const RESULTS: [&str; 2] = ["success", "error"];

static FIGURES: LazyLock<Figures> = LazyLock::new(|| {
    let of = flotilla_metrics::process();
    let requests = of.counters(
        "karmada_scheduler_estimator_estimating_request_total",
        "Number of local estimates.",
        ["result", "type"],
    );
    let algorithm = of.histograms(
        "karmada_scheduler_estimator_estimating_algorithm_duration_seconds",
        "Duration of a local estimate.",
        &exponential(0.001, 2.0, 10),
        ["result", "type", "step"],
    );
    let points = of.histograms(
        "karmada_scheduler_estimator_estimating_plugin_extension_point_duration_seconds",
        "Duration of all plugins of an estimate.",
        &exponential(0.0001, 2.0, 12),
        ["estimating_plugin_extension_point"],
    );
    let plugins = of.histograms(
        "karmada_scheduler_estimator_estimating_plugin_execution_duration_seconds",
        "Duration of one plugin of an estimate.",
        &exponential(0.00001, 1.5, 20),
        ["estimating_plugin", "estimating_plugin_extension_point"],
    );
    Figures {
        requests: TYPES.map(|kind| RESULTS.map(|result| requests.with([result, kind]))),
        algorithm: TYPES.map(|kind| RESULTS.map(|result| algorithm.with([result, kind, "Total"]))),
        points: POINTS.map(|point| points.with([point])),
        plugins: PLUGINS.map(|plugin| POINTS.map(|point| plugins.with([plugin, point]))),
    }
});

static CALLS: LazyLock<Outcomes> = LazyLock::new(|| {
    Outcomes::new(
        flotilla_metrics::process(),
        "flotilla_scheduler_estimator_call_duration_seconds",
        "Duration of calls to the estimators of clusters.",
        &exponential(0.001, 2.0, 13),
    )
});

/// Registers all metrics, including those without a value yet.
pub(crate) fn show() {
    LazyLock::force(&FIGURES);
    LazyLock::force(&CALLS);
}

/// Records a local estimate, successful or not.
pub(crate) fn estimated(point: Point, took: Duration, success: bool) {
    let (at, result) = (point as usize, usize::from(!success));
    FIGURES.requests[at][result].inc();
    FIGURES.algorithm[at][result].observe(took.as_secs_f64());
    FIGURES.points[at].observe(took.as_secs_f64());
}

pub(crate) fn ran(plugin: Plugin, point: Point, took: Duration) {
    FIGURES.plugins[plugin as usize][point as usize].observe(took.as_secs_f64());
}

/// Records a call to the estimator of a cluster.
pub(crate) fn asked(took: Duration, success: bool) {
    CALLS.observe(took, success);
}
