//! The registry of metrics and their text format.

use std::sync::LazyLock;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, HistogramOpts, Opts, TextEncoder};

use crate::family::{Family, LabeledMetric};
use crate::read::{Figure, Reader, Readings};
use crate::{Counter, FloatGauge, Gauge, Histogram};

/// The metrics of one server, or of the process. Clones share one registry.
#[derive(Clone, Default)]
pub struct Registry(prometheus::Registry);

/// The metrics that this process has once, however many servers run in it. Its names
/// differ from those in the registry of a server.
pub fn process() -> &'static Registry {
    static PROCESS: LazyLock<Registry> = LazyLock::new(|| {
        let registry = Registry::new();
        registry.keep(ProcessCollector::for_self());
        registry
    });
    &PROCESS
}

/// The upper bounds of `n` buckets from `start`, each `factor` times the previous.
pub fn exponential(start: f64, factor: f64, n: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |last| Some(last * factor))
        .take(n)
        .collect()
}

/// Encodes the metrics of some registries in Prometheus' text format 0.0.4.
pub fn text(registries: &[&Registry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(128 * 1024);
    for registry in registries {
        // Writing to a vector fails only for metrics without a name, which cannot be
        // registered.
        let _ = TextEncoder::new().encode(&registry.0.gather(), &mut out);
    }
    out
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter without labels.
    pub fn counter(&self, name: &str, help: &str) -> Counter {
        self.counters(name, help, []).with([])
    }

    /// A gauge without labels.
    pub fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.gauges(name, help, []).with([])
    }

    /// A histogram without labels; `buckets` are upper bounds, ascending.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.histograms(name, help, buckets, []).with([])
    }

    /// Counters by labels.
    pub fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Family<Counter, N> {
        self.family(Opts::new(name, help), labels)
    }

    /// Integer gauges by labels.
    pub fn gauges<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Family<Gauge, N> {
        self.family(Opts::new(name, help), labels)
    }

    /// Floating-point gauges by labels.
    pub fn amounts<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Family<FloatGauge, N> {
        self.family(Opts::new(name, help), labels)
    }

    /// Histograms by labels; `buckets` are upper bounds, ascending.
    pub fn histograms<const N: usize>(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: [&str; N],
    ) -> Family<Histogram, N> {
        self.family(
            HistogramOpts::new(name, help).buckets(buckets.to_vec()),
            labels,
        )
    }

    /// Metrics whose values other code counts: each scrape calls `read`, which sets any
    /// number of values per metric.
    pub fn read(
        &self,
        figures: &[Figure],
        read: impl Fn(&mut Readings<'_>) + Send + Sync + 'static,
    ) {
        self.keep(Reader::new(figures, Box::new(read)));
    }

    fn family<M: LabeledMetric, const N: usize>(
        &self,
        options: M::Options,
        labels: [&str; N],
    ) -> Family<M, N> {
        let family = Family::new(options, labels);
        self.keep(family.collector());
        family
    }

    #[expect(
        clippy::expect_used,
        reason = "names are constants: the first scrape of a test fails on one used twice"
    )]
    fn keep(&self, collector: impl Collector + 'static) {
        self.0
            .register(Box::new(collector))
            .expect("a metric's name is used once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    #[test]
    fn metrics_are_encoded_as_text() {
        let registry = Registry::new();
        let family = registry.counters("seen_total", "Things seen.", ["kind"]);
        let pods = family.with(["pods"]);
        pods.inc_by(2);
        family.with(["pods"]).inc();
        family.with(["gone"]).inc();
        family.forget(["gone"]);
        registry
            .histogram("took_seconds", "Time.", &exponential(0.5, 2.0, 2))
            .observe(0.75);
        let figures = [
            Figure::new("held", "Things held.", Shape::Gauge, &["where"]),
            Figure::new("none", "Nothing.", Shape::Counter, &[]),
        ];
        registry.read(&figures, |readings| {
            readings.set("held", &["here"], 7.0);
        });
        let text = String::from_utf8(text(&[&registry, &Registry::new()])).unwrap();
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
