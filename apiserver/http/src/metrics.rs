//! Metrics of requests under kube-apiserver's names and labels.
//!
//! The series of a label set are resolved once. Labels name known resources only, so
//! that clients cannot grow the number of series.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use flotilla_metrics::{
    Counter, Gauge, Histogram, MetricVec, MetricsRegistry, exponential_buckets,
};
use parking_lot::RwLock;

use crate::VersionInfo;

const REQUEST_DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Labels of every request metric; `dry_run` and `code` follow where a metric has them.
const BASE_LABELS: [&str; 7] = [
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];
const CERTIFICATE_LIFETIME_BUCKETS: [f64; 14] = [
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21600.0,
    43200.0,
    86400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];
const COMPONENT: &str = "apiserver";
/// Bound on distinct label sets; further requests are counted without a resource.
const MAX_LABEL_SETS: usize = 20_000;

/// The labels of a request's metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestLabels {
    /// `GET`, `LIST`, ... or `other`.
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    /// `resource`, `namespace`, `cluster` or empty.
    pub(crate) scope: &'static str,
    pub(crate) dry_run: bool,
}

/// The series of one label set.
struct RequestSeries {
    latency: OnceLock<LatencySeries>,
    codes: RwLock<HashMap<u16, Counter>>,
}

/// The latency and size series of requests that are not long-running.
struct LatencySeries {
    duration: Histogram,
    /// `None` for WATCH and CONNECT, which have no latency objective.
    sli: Option<Histogram>,
    /// `None` unless the request is a GET or LIST.
    size: Option<Histogram>,
}

/// All metrics of the server.
pub(crate) struct ApiServerMetrics {
    registry: MetricsRegistry,
    /// The health check metrics, served at `/metrics/slis`.
    slis: MetricsRegistry,
    /// Whether `/metrics` includes the metrics of the whole process.
    process: bool,
    requests: MetricVec<Counter, 9>,
    durations: MetricVec<Histogram, 8>,
    sli: MetricVec<Histogram, 7>,
    sizes: MetricVec<Histogram, 7>,
    long_running: MetricVec<Gauge, 7>,
    inflight: [Gauge; 2],
    terminations: MetricVec<Counter, 3>,
    pub(crate) aborts: Counter,
    pub(crate) handshake_errors: Counter,
    watch_events: MetricVec<Counter, 3>,
    certificate_expiration: Histogram,
    health: MetricVec<Gauge, 2>,
    authentication: AuthenticationMetrics,
    authorization_attempts: [Counter; 2],
    series: RwLock<HashMap<RequestLabels, Arc<RequestSeries>>>,
}

/// Authentication attempts: successes, then failures.
struct AuthenticationMetrics {
    counts: [Counter; 2],
    times: [Histogram; 2],
}

/// The value of kube-apiserver's `verb` label.
pub(crate) fn verb_label(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "connect" => "CONNECT",
        "head" => "HEAD",
        _ => "other",
    }
}

/// Appends `extra` to `base`; serves label names and label values alike.
fn append_labels<'a, const N: usize>(base: [&'a str; 7], extra: &[&'a str]) -> [&'a str; N] {
    std::array::from_fn(|n| {
        base.get(n)
            .copied()
            .unwrap_or_else(|| extra[n - base.len()])
    })
}

impl ApiServerMetrics {
    /// Registers the metrics with `registry`. With `process`, the metrics of the process are
    /// served too.
    pub(crate) fn new(registry: MetricsRegistry, process: bool, version: &VersionInfo) -> Self {
        let slis = MetricsRegistry::new();
        let health = slis.gauges(
            "kubernetes_healthcheck",
            "The result of a single healthcheck.",
            ["name", "type"],
        );
        let inflight = registry.gauges(
            "apiserver_current_inflight_requests",
            "Requests in flight by request kind.",
            ["request_kind"],
        );
        build_info(&registry, version);
        Self {
            requests: registry.counters(
                "apiserver_request_total",
                "Counter of apiserver requests by verb, dry run value, group, version, resource, scope, component and HTTP response code.",
                append_labels(BASE_LABELS, &["dry_run", "code"]),
            ),
            durations: registry.histograms(
                "apiserver_request_duration_seconds",
                "Response latency in seconds.",
                &REQUEST_DURATION_BUCKETS,
                append_labels(BASE_LABELS, &["dry_run"]),
            ),
            sli: registry.histograms(
                "apiserver_request_sli_duration_seconds",
                "Response latency in seconds, not counting webhook duration and queue wait times.",
                &REQUEST_DURATION_BUCKETS[2..],
                BASE_LABELS,
            ),
            sizes: registry.histograms(
                "apiserver_response_sizes",
                "Response size in bytes for GET and LIST, where known beforehand.",
                &exponential_buckets(1000.0, 10.0, 7),
                BASE_LABELS,
            ),
            long_running: registry.gauges(
                "apiserver_longrunning_requests",
                "Active long-running requests.",
                BASE_LABELS,
            ),
            terminations: registry.counters(
                "apiserver_request_terminations_total",
                "Number of requests which apiserver terminated in self-defense.",
                ["verb", "code", "component"],
            ),
            aborts: registry.counter("apiserver_request_aborts_total", "Number of requests whose handler panicked."),
            handshake_errors: registry.counter(
                "apiserver_tls_handshake_errors_total",
                "Number of failed TLS handshakes.",
            ),
            watch_events: registry.counters(
                "apiserver_watch_events_total",
                "Number of events sent in watch clients.",
                ["group", "version", "resource"],
            ),
            certificate_expiration: registry.histogram(
                "apiserver_client_certificate_expiration_seconds",
                "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
                &CERTIFICATE_LIFETIME_BUCKETS,
            ),
            authentication: AuthenticationMetrics::new(&registry),
            authorization_attempts: {
                let family = registry.counters(
                    "authorization_attempts_total",
                    "Counter of authorization attempts by result.",
                    ["result"],
                );
                ["allowed", "denied"].map(|result| family.with_label_values([result]))
            },
            inflight: ["readOnly", "mutating"].map(|kind| inflight.with_label_values([kind])),
            health,
            series: RwLock::new(HashMap::new()),
            slis,
            process,
            registry,
        }
    }

    fn request_series(&self, route: &RequestLabels) -> Arc<RequestSeries> {
        if let Some(series) = self.series.read().get(route) {
            return Arc::clone(series);
        }
        let new_series = || {
            Arc::new(RequestSeries {
                latency: OnceLock::new(),
                codes: RwLock::default(),
            })
        };
        let mut routes = self.series.write();
        let route = if routes.len() < MAX_LABEL_SETS {
            route.clone()
        } else {
            RequestLabels {
                verb: route.verb,
                ..RequestLabels::default()
            }
        };
        Arc::clone(routes.entry(route).or_insert_with(new_series))
    }

    fn latency_series(&self, r: &RequestLabels) -> LatencySeries {
        let base = base_labels(r);
        LatencySeries {
            duration: self
                .durations
                .with_label_values(append_labels(base, &[dry_run_label(r)])),
            sli: (!matches!(r.verb, "WATCH" | "CONNECT")).then(|| self.sli.with_label_values(base)),
            size: matches!(r.verb, "GET" | "LIST").then(|| self.sizes.with_label_values(base)),
        }
    }

    /// Records a response. `duration` is set when the request was not long-running, `size`
    /// (bytes) when it is known beforehand.
    pub(crate) fn observe_response(
        &self,
        route: &RequestLabels,
        code: u16,
        duration: Option<Duration>,
        size: Option<u64>,
    ) {
        let handles = self.request_series(route);
        if let Some(duration) = duration {
            let timed = handles.latency.get_or_init(|| self.latency_series(route));
            timed.duration.observe(duration.as_secs_f64());
            if let Some(sli) = &timed.sli {
                sli.observe(duration.as_secs_f64());
            }
            if let (Some(sizes), Some(size)) = (&timed.size, size) {
                sizes.observe(size as f64);
            }
        }
        if let Some(counter) = handles.codes.read().get(&code) {
            counter.inc();
            return;
        }
        let text = code.to_string();
        let values = append_labels(base_labels(route), &[dry_run_label(route), &text]);
        let counter = self.requests.with_label_values(values);
        counter.inc();
        handles.codes.write().insert(code, counter);
    }

    /// Counts a long-running request until the guard is dropped.
    pub(crate) fn start_long_running(&self, route: &RequestLabels) -> GaugeGuard {
        GaugeGuard::new(self.long_running.with_label_values(base_labels(route)))
    }

    /// Counts a short request in flight until the guard is dropped.
    pub(crate) fn start_inflight(&self, mutating: bool) -> GaugeGuard {
        GaugeGuard::new(self.inflight[usize::from(mutating)].clone())
    }

    /// Counts a request that was refused to protect the server.
    pub(crate) fn count_termination(&self, verb: &'static str, code: &str) {
        self.terminations
            .with_label_values([verb, code, COMPONENT])
            .inc();
    }

    /// Records an authentication attempt.
    pub(crate) fn observe_authentication(&self, duration: Duration, success: bool) {
        let index = usize::from(!success);
        self.authentication.counts[index].inc();
        self.authentication.times[index].observe(duration.as_secs_f64());
    }

    /// Records an authorization decision.
    pub(crate) fn count_authorization(&self, allowed: bool) {
        self.authorization_attempts[usize::from(!allowed)].inc();
    }

    /// The counter for events of a resource's watches.
    pub(crate) fn watch_events(&self, group: &str, version: &str, resource: &str) -> Counter {
        self.watch_events
            .with_label_values([group, version, resource])
    }

    /// Records the remaining lifetime of a client certificate in seconds.
    pub(crate) fn observe_certificate_expiration(&self, seconds_left: f64) {
        self.certificate_expiration.observe(seconds_left);
    }

    /// Records the result of a health check; `kind` is `healthz`, `livez` or `readyz`.
    pub(crate) fn set_health(&self, name: &str, kind: &str, healthy: bool) {
        self.health
            .with_label_values([name, kind])
            .set(healthy.into());
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn text(&self) -> Vec<u8> {
        let all = [
            &self.registry,
            &self.slis,
            flotilla_metrics::process_registry(),
        ];
        flotilla_metrics::encode_text(if self.process { &all } else { &all[..2] })
    }

    /// The health check metrics in Prometheus' text format.
    pub(crate) fn slis_text(&self) -> Vec<u8> {
        flotilla_metrics::encode_text(&[&self.slis])
    }
}

impl AuthenticationMetrics {
    fn new(registry: &MetricsRegistry) -> Self {
        let counts = registry.counters(
            "authentication_attempts",
            "Counter of authentication attempts by result.",
            ["result"],
        );
        let times = registry.histograms(
            "authentication_duration_seconds",
            "Authentication duration in seconds by result.",
            &exponential_buckets(0.001, 2.0, 15),
            ["result"],
        );
        let results = ["success", "failure"];
        Self {
            counts: results.map(|r| counts.with_label_values([r])),
            times: results.map(|r| times.with_label_values([r])),
        }
    }
}

fn build_info(registry: &MetricsRegistry, version: &VersionInfo) {
    let labels = ["git_version", "major", "minor", "git_commit", "platform"];
    registry
        .gauges(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by the version that is running.",
            labels,
        )
        .with_label_values([
            &version.git_version,
            &version.major,
            &version.minor,
            &version.git_commit,
            &version.platform,
        ])
        .set(1);
}

fn base_labels(r: &RequestLabels) -> [&str; 7] {
    [
        r.verb,
        &r.group,
        &r.version,
        &r.resource,
        &r.subresource,
        r.scope,
        COMPONENT,
    ]
}

fn dry_run_label(r: &RequestLabels) -> &'static str {
    if r.dry_run { "All" } else { "" }
}

/// Counts one in a gauge until dropped.
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Records a response when its body ends.
pub(crate) struct ResponseMetricsGuard {
    pub(crate) metrics: Arc<ApiServerMetrics>,
    pub(crate) labels: Arc<RequestLabels>,
    pub(crate) code: u16,
    pub(crate) received_at: Instant,
    /// Body bytes, when known beforehand.
    pub(crate) size: Option<u64>,
}

impl Drop for ResponseMetricsGuard {
    fn drop(&mut self) {
        let duration = Some(self.received_at.elapsed());
        self.metrics
            .observe_response(&self.labels, self.code, duration, self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_kubernetes_names_and_buckets() {
        let metrics = ApiServerMetrics::new(MetricsRegistry::new(), true, &VersionInfo::default());
        let route = RequestLabels {
            verb: verb_label("list"),
            version: "v1".into(),
            resource: "pods".into(),
            scope: "cluster",
            ..RequestLabels::default()
        };
        metrics.observe_response(&route, 200, Some(Duration::from_millis(3)), Some(1500));
        metrics.observe_response(&route, 200, None, None);
        let _watch = metrics.start_long_running(&route);
        metrics.set_health("ping", "livez", true);
        metrics.observe_authentication(Duration::ZERO, false);
        let text = String::from_utf8(metrics.text()).unwrap();
        for expect in [
            "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 2",
            "apiserver_request_sli_duration_seconds_bucket{component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\",le=\"1\"} 1",
            "apiserver_longrunning_requests{",
            "apiserver_response_sizes_sum{component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1500",
            "authentication_attempts{result=\"failure\"} 1",
            "kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1",
            "kubernetes_build_info{",
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(expect), "{expect}\n{text}");
        }
        let slis = String::from_utf8(metrics.slis_text()).unwrap();
        assert_eq!(slis.lines().count(), 3, "{slis}");
    }
}
