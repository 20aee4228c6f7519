//! The metrics of calls to other servers, named as in client-go (`tools/metrics`).
//!
//! The metrics of a server are resolved at its first call.

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use ahash::AHashMap;
use flotilla_metrics::{Counter, Histogram, MetricVec};
use http::{Method, StatusCode};
use parking_lot::RwLock;

struct RestClientMetricFamilies {
    requests: MetricVec<Counter, 3>,
    durations: MetricVec<Histogram, 2>,
}

static METRIC_FAMILIES: LazyLock<RestClientMetricFamilies> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    RestClientMetricFamilies {
        requests: of.counters(
            "rest_client_requests_total",
            "Requests to other servers by status code.",
            ["code", "method", "host"],
        ),
        durations: of.histograms(
            "rest_client_request_duration_seconds",
            "Time until the response headers arrived.",
            &[
                0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
            ],
            ["verb", "host"],
        ),
    }
});

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "other"];

/// The metrics of one server.
pub(super) struct RestClientMetricsOfHost {
    host: String,
    durations: [OnceLock<Histogram>; METHODS.len()],
    requests_by_code: RwLock<AHashMap<(usize, u16), Counter>>,
}

impl RestClientMetricsOfHost {
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            durations: Default::default(),
            requests_by_code: RwLock::default(),
        }
    }

    /// Counts a request; without a code there was no response.
    pub(super) fn observe_request(
        &self,
        method: &Method,
        code: Option<StatusCode>,
        took: Duration,
    ) {
        let position = METHODS.iter().position(|m| *m == method.as_str());
        let at = position.unwrap_or(METHODS.len() - 1);
        self.durations[at]
            .get_or_init(|| {
                METRIC_FAMILIES
                    .durations
                    .with_label_values([METHODS[at], &self.host])
            })
            .observe(took.as_secs_f64());
        let key = (at, code.map_or(0, |c| c.as_u16()));
        if let Some(counter) = self.requests_by_code.read().get(&key) {
            return counter.inc();
        }
        let code = code.map_or_else(|| "<error>".to_owned(), |c| c.as_u16().to_string());
        let counter = METRIC_FAMILIES
            .requests
            .with_label_values([&code, METHODS[at], &self.host]);
        counter.inc();
        self.requests_by_code.write().insert(key, counter);
    }
}
