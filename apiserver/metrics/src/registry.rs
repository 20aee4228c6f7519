//! The registry of metrics and their text format.

use std::sync::LazyLock;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, HistogramOpts, Opts, TextEncoder};

use crate::callback::{CallbackCollector, CallbackMetricDesc, CallbackMetricWriter};
use crate::metric_vec::{MetricVec, MetricVecElement};
use crate::{Counter, FloatGauge, Gauge, Histogram};

/// The metrics of one server, or of the process. Clones share one registry.
#[derive(Clone, Default)]
pub struct MetricsRegistry(prometheus::Registry);

/// The metrics that this process has once, however many servers run in it. Its names
/// differ from those in the registry of a server.
pub fn process_registry() -> &'static MetricsRegistry {
    static PROCESS: LazyLock<MetricsRegistry> = LazyLock::new(|| {
        let registry = MetricsRegistry::new();
        registry.register(ProcessCollector::for_self());
        registry
    });
    &PROCESS
}

/// The upper bounds of `n` buckets from `start`, each `factor` times the previous.
pub fn exponential_buckets(start: f64, factor: f64, n: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |last| Some(last * factor))
        .take(n)
        .collect()
}

/// Encodes the metrics of some registries in Prometheus' text format 0.0.4.
pub fn encode_text(registries: &[&MetricsRegistry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 * 1024);
    for registry in registries {
        // Writing to a vector fails only for metrics without a name, which cannot be
        // registered.
        let _ = TextEncoder::new().encode(&registry.0.gather(), &mut out);
    }
    out
}

impl MetricsRegistry {
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter without labels.
    pub fn counter(&self, name: &str, help: &str) -> Counter {
        self.counters(name, help, []).with_label_values([])
    }

    /// A gauge without labels.
    pub fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.gauges(name, help, []).with_label_values([])
    }

    /// A histogram without labels; `buckets` are upper bounds, ascending.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.histograms(name, help, buckets, [])
            .with_label_values([])
    }

    /// Counters by labels.
    pub fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> MetricVec<Counter, N> {
        self.family(Opts::new(name, help), labels)
    }

    /// Integer gauges by labels.
    pub fn gauges<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> MetricVec<Gauge, N> {
        self.family(Opts::new(name, help), labels)
    }

    /// Floating-point gauges by labels.
    pub fn float_gauges<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> MetricVec<FloatGauge, N> {
        self.family(Opts::new(name, help), labels)
    }

    /// Histograms by labels; `buckets` are upper bounds, ascending.
    pub fn histograms<const N: usize>(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: [&str; N],
    ) -> MetricVec<Histogram, N> {
        self.family(
            HistogramOpts::new(name, help).buckets(buckets.to_vec()),
            labels,
        )
    }

    /// Metrics whose values other code counts: each scrape calls `read`, which sets any
    /// number of values per metric.
    pub fn register_callback(
        &self,
        descriptions: &[CallbackMetricDesc],
        read: impl Fn(&mut CallbackMetricWriter<'_>) + Send + Sync + 'static,
    ) {
        self.register(CallbackCollector::new(descriptions, Box::new(read)));
    }

    fn family<M: MetricVecElement, const N: usize>(
        &self,
        options: M::Options,
        labels: [&str; N],
    ) -> MetricVec<M, N> {
        let family = MetricVec::new(options, labels);
        self.register(family.collector());
        family
    }

    #[expect(
        clippy::expect_used,
        reason = "names are constants: the first scrape of a test fails on one used twice"
    )]
    fn register(&self, collector: impl Collector + 'static) {
        self.0
            .register(Box::new(collector))
            .expect("a metric's name is used once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallbackMetricType;

    #[test]
    fn metrics_are_encoded_as_text() {
        let registry = MetricsRegistry::new();
        let family = registry.counters("seen_total", "Things seen.", ["kind"]);
        let pods = family.with_label_values(["pods"]);
        pods.inc_by(2);
        family.with_label_values(["pods"]).inc();
        family.with_label_values(["gone"]).inc();
        family.remove_label_values(["gone"]);
        registry
            .histogram("took_seconds", "Time.", &exponential_buckets(0.5, 2.0, 2))
            .observe(0.75);
        let descriptions = [
            CallbackMetricDesc::new(
                "held",
                "Things held.",
                CallbackMetricType::Gauge,
                &["where"],
            ),
            CallbackMetricDesc::new("none", "Nothing.", CallbackMetricType::Counter, &[]),
        ];
        registry.register_callback(&descriptions, |writer| {
            writer.set("held", &["here"], 7.0);
        });
        let text = String::from_utf8(encode_text(&[&registry, &MetricsRegistry::new()])).unwrap();
        let expected = "\
# HELP held Things held.
# TYPE held gauge
held{where=\"here\"} 7
# HELP seen_total Things seen.
# TYPE seen_total counter
seen_total{kind=\"pods\"} 3
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{le=\"0.5\"} 0
took_seconds_bucket{le=\"1\"} 1
took_seconds_bucket{le=\"+Inf\"} 1
took_seconds_sum 0.75
took_seconds_count 1
";
        assert_eq!(text, expected);
    }
}
