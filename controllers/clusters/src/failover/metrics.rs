//! The metrics of evictions, named as in Karmada (`pkg/metrics/cluster.go`).

use std::sync::LazyLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Gauge, Histogram, MetricVec, exponential_buckets};

/// Karmada has one queue per kind of binding; here there is one for both.
const QUEUE_NAME: &str = "binding-eviction";

pub(super) struct EvictionMetrics {
    latency: Histogram,
    outcomes: [Counter; 2],
    depth: Gauge,
    pending_by_kind: MetricVec<Gauge, 2>,
}

pub(super) static EVICTION_METRICS: LazyLock<EvictionMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    let latency = of.histograms(
        "eviction_processing_latency_seconds",
        "Latency of processing an eviction in seconds, without the wait for the eviction rate.",
        &exponential_buckets(0.001, 2.0, 15),
        ["name"],
    );
    let outcomes = of.counters(
        "eviction_processing_total",
        "Number of evictions processed by result.",
        ["name", "result"],
    );
    let depth = of.gauges(
        "eviction_queue_depth",
        "Current depth of the eviction queue.",
        ["name"],
    );
    let kinds = of.gauges(
        "eviction_kind_total",
        "Number of bindings in the eviction queue by cluster and kind.",
        ["member_cluster", "resource_kind"],
    );
    EvictionMetrics {
        pending_by_kind: kinds,
        depth: depth.with_label_values([QUEUE_NAME]),
        latency: latency.with_label_values([QUEUE_NAME]),
        outcomes: ["success", "error"]
            .map(|result| outcomes.with_label_values([QUEUE_NAME, result])),
    }
});

impl EvictionMetrics {
    pub(super) fn set_queue_depth(&self, depth: usize) {
        self.depth.set(depth as i64);
    }

    /// The gauge of one cluster and kind of binding.
    pub(super) fn pending_of_kind(&self, cluster: &str, kind: &str) -> Gauge {
        self.pending_by_kind.with_label_values([cluster, kind])
    }

    pub(super) fn observe_eviction(&self, took: Duration, success: bool) {
        self.latency.observe(took.as_secs_f64());
        self.outcomes[usize::from(!success)].inc();
    }
}
