//! The metrics of evictions, named as in Karmada (`pkg/metrics/cluster.go`).

use std::sync::LazyLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Family, Gauge, Histogram, exponential};

/// Karmada has one queue per kind of binding; here there is one for both.
const QUEUE: &str = "binding-eviction";

pub(super) struct Figures {
    latency: Histogram,
    outcomes: [Counter; 2],
    depth: Gauge,
    kinds: Family<Gauge, 2>,
}

pub(super) static FIGURES: LazyLock<Figures> = LazyLock::new(|| {
    let of = flotilla_metrics::process();
    let latency = of.histograms(
        "eviction_processing_latency_seconds",
        "Latency of processing an eviction in seconds, without the wait for the eviction rate.",
        &exponential(0.001, 2.0, 15),
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
    Figures {
        kinds,
        depth: depth.with([QUEUE]),
        latency: latency.with([QUEUE]),
        outcomes: ["success", "error"].map(|result| outcomes.with([QUEUE, result])),
    }
});

impl Figures {
    pub(super) fn waiting(&self, depth: usize) {
        self.depth.set(depth as i64);
    }

    /// The gauge of one cluster and kind of binding.
    pub(super) fn of_kind(&self, cluster: &str, kind: &str) -> Gauge {
        self.kinds.with([cluster, kind])
    }

    pub(super) fn processed(&self, took: Duration, success: bool) {
        self.latency.observe(took.as_secs_f64());
        self.outcomes[usize::from(!success)].inc();
    }
}
