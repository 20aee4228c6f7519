//! Series of one name that differ in their labels.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use crate::{Amount, Counter, Gauge, Histogram};

/// A kind of metric that a family can have.
pub trait Series: Clone + Send + Sync + Sized + 'static {
    /// Name and help, and for histograms the buckets.
    type Options;
    /// The library's form of a family.
    type Family: Collector + Clone + 'static;
    /// Fails on a name or label that Prometheus does not allow.
    fn family(options: Self::Options, labels: &[&str]) -> prometheus::Result<Self::Family>;
    /// The series with these values, made when it is new.
    fn one(family: &Self::Family, values: &[&str]) -> Self;
    /// Ends a series.
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
                // One that never was has ended.
                let _ = family.remove_label_values(values);
            }
        }
    };
}

series!(Counter, IntCounterVec, Opts);
series!(Gauge, IntGaugeVec, Opts);
series!(Amount, GaugeVec, Opts);
series!(Histogram, HistogramVec, HistogramOpts);

/// Series of one name, by `N` labels.
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

    /// The series with these label values, in the order of the labels. Takes a lock
    /// for reading: keep what it gives where it is used often.
    pub fn with(&self, values: [&str; N]) -> M {
        M::one(&self.0, &values)
    }

    /// Ends a series; whoever still holds it counts in vain.
    pub fn forget(&self, values: [&str; N]) {
        M::end(&self.0, &values);
    }
}
