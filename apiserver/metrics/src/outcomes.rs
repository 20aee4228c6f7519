//! Latency histograms by result, success or error.

use std::time::Duration;

use crate::{Histogram, Registry};

/// A pair of histograms, `result="success"` and `result="error"`, as Karmada has for each
/// of its stages.
#[derive(Clone)]
pub struct Outcomes {
    success: Histogram,
    error: Histogram,
}

impl Outcomes {
    pub fn new(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Self {
        let family = registry.histograms(name, help, buckets, ["result"]);
        Self {
            success: family.with(["success"]),
            error: family.with(["error"]),
        }
    }

    pub fn observe(&self, took: Duration, success: bool) {
        let of = if success { &self.success } else { &self.error };
        of.observe(took.as_secs_f64());
    }
}
