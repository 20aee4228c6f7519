//! A metric with labels: series that share a name and differ in their label values.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::{Amount, Counter, Gauge, Histogram};

/// A metric type that can have labels.
pub trait Series: Clone + Send + Sync + Sized + 'static {
    /// Name and help, and for histograms the buckets.
    type Options;
    /// The type of the labeled metric in the prometheus crate.
    type Family: Collector + Clone + 'static;
    /// Creates the labeled metric. Fails on a name or label that Prometheus does not allow.
    fn family(options: Self::Options, labels: &[&str]) -> prometheus::Result<Self::Family>;
    /// The series with these label values, created at its first use.
    fn one(family: &Self::Family, values: &[&str]) -> Self;
    /// Removes a series.
    fn end(family: &Self::Family, values: &[&str]);
}

macro_rules! series {
    ($series:ty, $family:ty, $options:ty) => {
        impl Series for $series {
            type Options = $options;
            type Family = $family;
            fn family(options: $options, labels: &[&str]) -> prometheus::Result<$family> {
                <$family>::new(options, labels)
            }
            fn one(family: &$family, values: &[&str]) -> Self {
                family.with_label_values(values)
            }
            fn end(family: &$family, values: &[&str]) {
                // An absent series needs no removal.
                let _ = family.remove_label_values(values);
            }
        }
    };
}

series!(Counter, IntCounterVec, Opts);
series!(Gauge, IntGaugeVec, Opts);
series!(Amount, GaugeVec, Opts);
series!(Histogram, HistogramVec, HistogramOpts);

/// A metric with `N` labels.
#[derive(Clone)]
pub struct Family<M: Series, const N: usize>(M::Family);

impl<M: Series, const N: usize> Family<M, N> {
    #[expect(
        clippy::expect_used,
        reason = "names are constants: the first scrape of a test fails on a wrong one"
    )]
    pub(crate) fn new(options: M::Options, labels: [&str; N]) -> Self {
        Self(M::family(options, &labels).expect("Prometheus allows the name"))
    }

    pub(crate) fn collector(&self) -> M::Family {
        self.0.clone()
    }

    /// The series with these label values, in the order of the labels. Takes a read lock:
    /// callers that use a series often keep it.
    pub fn with(&self, values: [&str; N]) -> M {
        M::one(&self.0, &values)
    }

    /// Removes a series. Updates through handles to it are no longer exported.
    pub fn forget(&self, values: [&str; N]) {
        M::end(&self.0, &values);
    }
}
