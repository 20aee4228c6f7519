//! Metrics of the cluster proxy, by cluster.

use std::time::Duration;

use flotilla_metrics::{Counter, Family, Gauge, Histogram, Registry};

const TIMES: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

pub(super) struct Metrics {
    requests: Family<Counter, 2>,
    open: Family<Gauge, 1>,
    bytes: Family<Counter, 2>,
    durations: Family<Histogram, 1>,
}

/// The metrics of one proxied request, which counts as open until this is dropped.
pub(super) struct Figures {
    cluster: String,
    requests: Family<Counter, 2>,
    duration: Histogram,
    open: Gauge,
    /// Bytes sent to the member.
    pub(super) sent: Counter,
    /// Bytes received from the member.
    pub(super) received: Counter,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            requests: registry.counters(
                "flotilla_cluster_proxy_requests_total",
                "Requests proxied to a member cluster by response code.",
                ["cluster", "code"],
            ),
            open: registry.gauges(
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
                &TIMES,
                ["cluster"],
            ),
        }
    }

    /// Counts one request. `cluster` must exist, so that clients cannot grow the number
    /// of series.
    pub(super) fn begin(&self, cluster: &str) -> Figures {
        let open = self.open.with([cluster]);
        open.inc();
        Figures {
            cluster: cluster.to_owned(),
            requests: self.requests.clone(),
            duration: self.durations.with([cluster]),
            open,
            sent: self.bytes.with([cluster, "sent"]),
            received: self.bytes.with([cluster, "received"]),
        }
    }
}

impl Figures {
    pub(super) fn answered(&self, code: u16, took: Duration) {
        let code = code.to_string();
        self.requests.with([&self.cluster, &code]).inc();
        self.duration.observe(took.as_secs_f64());
    }
}

impl Drop for Figures {
    fn drop(&mut self) {
        self.open.dec();
    }
}
