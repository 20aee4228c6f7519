//! Metrics under the names and labels of kube-apiserver.
//!
//! Enters: the route of a request and its outcome. Leaves: Prometheus text. The
//! handles of a route are resolved once; routes are made of known resources only,
//! so that the number of series does not grow with what clients send.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::Version;

const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Labels of every metric by route.
const BASE: [&str; 7] = [
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];
const LIVES: [f64; 14] = [
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
/// Routes remembered at most; beyond that requests are counted under no resource.
const MAX_ROUTES: usize = 20_000;

/// What a request is counted under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Route {
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

/// A route's handles.
struct Handles {
    duration: Histogram,
    sli: Histogram,
    long_running: IntGauge,
    codes: RwLock<HashMap<u16, IntCounter>>,
}

/// All metrics of the server.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    sli: HistogramVec,
    long_running: IntGaugeVec,
    inflight: [IntGauge; 2],
    terminations: IntCounterVec,
    pub(crate) aborts: IntCounter,
    pub(crate) handshake_errors: IntCounter,
    pub(crate) watch_events: IntCounter,
    certificate_expiration: Histogram,
    health: IntGaugeVec,
    routes: RwLock<HashMap<Route, Arc<Handles>>>,
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// Verbs of kube-apiserver's label.
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

impl Metrics {
    /// Fails only on a name used twice.
    pub(crate) fn new(version: &Version) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let gauges = |name, help, labels: &[&str]| {
            register(&registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        let counters = |name, help, labels: &[&str]| {
            register(
                &registry,
                IntCounterVec::new(Opts::new(name, help), labels)?,
            )
        };
        let counter =
            |name, help| register(&registry, IntCounter::with_opts(Opts::new(name, help))?);
        let times = |name, help, buckets: &[f64], labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            register(&registry, HistogramVec::new(options, labels)?)
        };
        let inflight = gauges(
            "apiserver_current_inflight_requests",
            "Requests being handled.",
            &["request_kind"],
        )?;
        let expiration = HistogramOpts::new(
            "apiserver_client_certificate_expiration_seconds",
            "Remaining life of client certificates.",
        )
        .buckets(LIVES.to_vec());
        let metrics = Self {
            requests: counters(
                "apiserver_request_total",
                "Requests by outcome.",
                &[&BASE[..], &["dry_run", "code"]].concat(),
            )?,
            durations: times(
                "apiserver_request_duration_seconds",
                "Time until the reply was ready.",
                &DURATIONS,
                &[&BASE[..], &["dry_run"]].concat(),
            )?,
            sli: times(
                "apiserver_request_sli_duration_seconds",
                "The same without time spent in webhooks and queues.",
                &DURATIONS[2..],
                &BASE,
            )?,
            long_running: gauges(
                "apiserver_longrunning_requests",
                "Watches and tunnels open.",
                &BASE,
            )?,
            terminations: counters(
                "apiserver_request_terminations_total",
                "Requests refused to protect the server.",
                &["verb", "code", "component"],
            )?,
            health: gauges(
                "kubernetes_healthcheck",
                "Result of a health check.",
                &["name", "type"],
            )?,
            aborts: counter("apiserver_request_aborts_total", "Handlers that panicked.")?,
            handshake_errors: counter(
                "apiserver_tls_handshake_errors_total",
                "TLS handshakes that failed.",
            )?,
            watch_events: counter("apiserver_watch_events_total", "Events sent to watchers.")?,
            certificate_expiration: register(&registry, Histogram::with_opts(expiration)?)?,
            inflight: ["readOnly", "mutating"].map(|kind| inflight.with_label_values(&[kind])),
            routes: RwLock::new(HashMap::new()),
            registry: registry.clone(),
        };
        let labels = ["git_version", "major", "minor", "git_commit", "platform"];
        gauges("kubernetes_build_info", "What is running.", &labels)?
            .with_label_values(&[
                version.git_version.as_str(),
                &version.major,
                &version.minor,
                &version.git_commit,
                &version.platform,
            ])
            .set(1);
        registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(metrics)
    }

    /// Where other rooms register theirs.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    fn handles(&self, route: &Route) -> Arc<Handles> {
        if let Some(found) = self.routes.read().get(route) {
            return Arc::clone(found);
        }
        let mut routes = self.routes.write();
        if routes.len() >= MAX_ROUTES {
            let other = Route {
                verb: route.verb,
                ..Route::default()
            };
            return Arc::clone(
                routes
                    .entry(other.clone())
                    .or_insert_with(|| self.resolve(&other)),
            );
        }
        let made = || self.resolve(route);
        Arc::clone(routes.entry(route.clone()).or_insert_with(made))
    }

    fn resolve(&self, r: &Route) -> Arc<Handles> {
        let base = base_labels(r);
        Arc::new(Handles {
            duration: self
                .durations
                .with_label_values(&[&base[..], &[dry(r)]].concat()),
            sli: self.sli.with_label_values(&base),
            long_running: self.long_running.with_label_values(&base),
            codes: RwLock::new(HashMap::new()),
        })
    }

    /// Counts a reply; with a time when the request was not long-running.
    pub(crate) fn observe(&self, route: &Route, code: u16, took: Option<Duration>) {
        let handles = self.handles(route);
        if let Some(took) = took {
            handles.duration.observe(took.as_secs_f64());
            handles.sli.observe(took.as_secs_f64());
        }
        if let Some(counter) = handles.codes.read().get(&code) {
            counter.inc();
            return;
        }
        let code_text = code.to_string();
        let labels = [&base_labels(route)[..], &[dry(route), &code_text]].concat();
        let counter = self.requests.with_label_values(&labels);
        counter.inc();
        handles.codes.write().insert(code, counter);
    }

    /// A long-running request, until the guard is dropped.
    pub(crate) fn long_running(&self, route: &Route) -> GaugeGuard {
        GaugeGuard::new(self.handles(route).long_running.clone())
    }

    /// A short request, until the guard is dropped.
    pub(crate) fn inflight(&self, mutating: bool) -> GaugeGuard {
        GaugeGuard::new(self.inflight[usize::from(mutating)].clone())
    }

    /// A request refused to protect the server.
    pub(crate) fn terminated(&self, verb: &'static str, code: &str) {
        self.terminations
            .with_label_values(&[verb, code, COMPONENT])
            .inc();
    }

    /// A client certificate was shown that ends in so many seconds.
    pub(crate) fn certificate(&self, seconds_left: f64) {
        self.certificate_expiration.observe(seconds_left);
    }

    /// The result of a health check; `kind` is `healthz`, `livez` or `readyz`.
    pub(crate) fn health(&self, name: &str, kind: &str, fine: bool) {
        self.health
            .with_label_values(&[name, kind])
            .set(fine.into());
    }

    /// Everything, as text.
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 * 1024);
        // Writing to a vector fails only on malformed families, of which none exist.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        out
    }
}

fn base_labels(r: &Route) -> [&str; 7] {
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

fn dry(r: &Route) -> &'static str {
    if r.dry_run { "All" } else { "" }
}

/// Counts one while it lives.
pub(crate) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts a reply when its body is over.
pub(crate) struct Observation {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) route: Route,
    pub(crate) code: u16,
    /// When a short request began.
    pub(crate) since: Option<Instant>,
}

impl Drop for Observation {
    fn drop(&mut self) {
        let took = self.since.map(|at| at.elapsed());
        self.metrics.observe(&self.route, self.code, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_kubernetes_names_and_buckets() {
        let metrics = Metrics::new(&Version::default()).unwrap();
        let route = Route {
            verb: verb_label("list"),
            version: "v1".into(),
            resource: "pods".into(),
            scope: "cluster",
            ..Route::default()
        };
        metrics.observe(&route, 200, Some(Duration::from_millis(3)));
        metrics.observe(&route, 200, None);
        let _watch = metrics.long_running(&route);
        let text = String::from_utf8(metrics.text()).unwrap();
        for expect in [
            "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 2",
            "apiserver_request_sli_duration_seconds_bucket{component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\",verb=\"LIST\",version=\"v1\",le=\"1\"} 1",
            "apiserver_longrunning_requests{",
            "kubernetes_build_info{",
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(expect), "{expect}\n{text}");
        }
    }
}
