//! What is told of evictions, under Karmada's names (`pkg/metrics/cluster.go`).

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, Family, Gauge, Histogram, exponential};

/// Karmada has a queue for each kind of binding; here it is one.
const QUEUE: &str = "binding-eviction";

pub(super) struct Figures {
    latency: Histogram,
    outcomes: [Counter; 2],
    depth: Gauge,
    kinds: Family<Gauge, 2>,
}

pub(super) static FIGURES: LazyLock<Figures> = LazyLock::new(|| {
    let of = metrics::process();
    let latency = of.histograms(
        "eviction_processing_latency_seconds",
        "Time that an eviction takes, once it is its turn.",
        &exponential(0.001, 2.0, 15),
        ["name"],
    );
    let outcomes = of.counters(
        "eviction_processing_total",
        "Evictions by result.",
        ["name", "result"],
    );
    let depth = of.gauges(
        "eviction_queue_depth",
        "Bindings that wait to be looked at, since a taint may evict them.",
        ["name"],
    );
    let kinds = of.gauges(
        "eviction_kind_total",
        "Bindings that a taint of a cluster may evict, until that is decided.",
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

    /// Those of one cluster, by the kind of binding.
    pub(super) fn of_kind(&self, cluster: &str, kind: &str) -> Gauge {
        self.kinds.with([cluster, kind])
    }

    pub(super) fn processed(&self, took: Duration, success: bool) {
        self.latency.observe(took.as_secs_f64());
        self.outcomes[usize::from(!success)].inc();
    }
}
