//! A metric with labels: series that share a name and differ in their label values.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::{Counter, FloatGauge, Gauge, Histogram};

/// A metric type that can have labels.
pub trait MetricVecElement: Clone + Send + Sync + Sized + 'static {
    /// Name and help, and for histograms the buckets.
    type Options;
    /// The type of the labeled metric in the prometheus crate.
    type Labeled: Collector + Clone + 'static;
    /// Creates the labeled metric. Fails on a name or label that Prometheus does not allow.
    fn create(options: Self::Options, labels: &[&str]) -> prometheus::Result<Self::Labeled>;
    /// The series with these label values, created at its first use.
    fn series(vec: &Self::Labeled, values: &[&str]) -> Self;
    /// Removes a series.
    fn remove_series(vec: &Self::Labeled, values: &[&str]);
}

macro_rules! labeled_metric {
    ($metric:ty, $vec:ty, $options:ty) => {
        impl MetricVecElement for $metric {
            type Options = $options;
            type Labeled = $vec;
            fn create(options: $options, labels: &[&str]) -> prometheus::Result<$vec> {
                <$vec>::new(options, labels)
            }
            fn series(vec: &$vec, values: &[&str]) -> Self {
                vec.with_label_values(values)
            }
            fn remove_series(vec: &$vec, values: &[&str]) {
                // An absent series needs no removal.
                let _ = vec.remove_label_values(values);
            }
        }
    };
}

labeled_metric!(Counter, IntCounterVec, Opts);
labeled_metric!(Gauge, IntGaugeVec, Opts);
labeled_metric!(FloatGauge, GaugeVec, Opts);
labeled_metric!(Histogram, HistogramVec, HistogramOpts);

/// A metric with `N` labels.
#[derive(Clone)]
pub struct MetricVec<M: MetricVecElement, const N: usize>(M::Labeled);

impl<M: MetricVecElement, const N: usize> MetricVec<M, N> {
    #[expect(
        clippy::expect_used,
        reason = "names are constants: the first scrape of a test fails on a wrong one"
    )]
    pub(crate) fn new(options: M::Options, labels: [&str; N]) -> Self {
        Self(M::create(options, &labels).expect("Prometheus allows the name"))
    }

    pub(crate) fn collector(&self) -> M::Labeled {
        self.0.clone()
    }

    /// The series with these label values, in the order of the labels. Takes a read lock:
    /// callers that use a series often keep it.
    pub fn with_label_values(&self, values: [&str; N]) -> M {
        M::series(&self.0, &values)
    }

    /// Removes a series. Updates through handles to it are no longer exported.
    pub fn remove_label_values(&self, values: [&str; N]) {
        M::remove_series(&self.0, &values);
    }
}
