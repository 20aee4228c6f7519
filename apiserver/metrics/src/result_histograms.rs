//! Latency histograms by result, success or error.

use std::time::Duration;

use crate::{Histogram, MetricsRegistry};

/// A pair of histograms, `result="success"` and `result="error"`, as Karmada has for each
/// of its stages.
#[derive(Clone)]
pub struct ResultHistograms {
    success: Histogram,
    error: Histogram,
}

impl ResultHistograms {
    pub fn new(registry: &MetricsRegistry, name: &str, help: &str, buckets: &[f64]) -> Self {
        let family = registry.histograms(name, help, buckets, ["result"]);
        Self {
            success: family.with_label_values(["success"]),
            error: family.with_label_values(["error"]),
        }
    }

    /// Takes the histograms from a family that has more labels.
    pub fn from_series(success: Histogram, error: Histogram) -> Self {
        Self { success, error }
    }

    pub fn observe(&self, duration: Duration, success: bool) {
        let histogram = if success { &self.success } else { &self.error };
        histogram.observe(duration.as_secs_f64());
    }
}
