//! Metrics of the cluster proxy, by cluster.

use std::time::Duration;

use flotilla_metrics::{Counter, Gauge, Histogram, MetricVec, MetricsRegistry};

const DURATION_BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

pub(super) struct ClusterProxyMetrics {
    requests: MetricVec<Counter, 2>,
    open_requests: MetricVec<Gauge, 1>,
    bytes: MetricVec<Counter, 2>,
    durations: MetricVec<Histogram, 1>,
}

/// The metrics of one proxied request, which counts as open until this is dropped.
pub(super) struct ProxiedRequestMetricsGuard {
    cluster: String,
    requests: MetricVec<Counter, 2>,
    duration: Histogram,
    open: Gauge,
    /// Bytes sent to the member.
    pub(super) sent_bytes: Counter,
    /// Bytes received from the member.
    pub(super) received_bytes: Counter,
}

impl ClusterProxyMetrics {
    pub(super) fn new(registry: &MetricsRegistry) -> Self {
        Self {
            requests: registry.counters(
                "flotilla_cluster_proxy_requests_total",
                "Requests proxied to a member cluster by response code.",
                ["cluster", "code"],
            ),
            open_requests: registry.gauges(
                "flotilla_cluster_proxy_open",
                "Open proxied requests, watches and tunnels to a member cluster.",
                ["cluster"],
            ),
            bytes: registry.counters(
                "flotilla_cluster_proxy_bytes_total",
                "Bytes of proxied bodies and tunnels.",
                ["cluster", "direction"],
            ),
            durations: registry.histograms(
                "flotilla_cluster_proxy_duration_seconds",
                "Time until a member cluster's response started, in seconds.",
                &DURATION_BUCKETS,
                ["cluster"],
            ),
        }
    }

    /// Counts one request. `cluster` must exist, so that clients cannot grow the number
    /// of series.
    pub(super) fn start_request(&self, cluster: &str) -> ProxiedRequestMetricsGuard {
        let open = self.open_requests.with_label_values([cluster]);
        open.inc();
        ProxiedRequestMetricsGuard {
            cluster: cluster.to_owned(),
            requests: self.requests.clone(),
            duration: self.durations.with_label_values([cluster]),
            open,
            sent_bytes: self.bytes.with_label_values([cluster, "sent"]),
            received_bytes: self.bytes.with_label_values([cluster, "received"]),
        }
    }
}

impl ProxiedRequestMetricsGuard {
    pub(super) fn observe_response(&self, code: u16, duration: Duration) {
        let code = code.to_string();
        self.requests
            .with_label_values([&self.cluster, &code])
            .inc();
        self.duration.observe(duration.as_secs_f64());
    }
}

impl Drop for ProxiedRequestMetricsGuard {
    fn drop(&mut self) {
        self.open.dec();
    }
}
