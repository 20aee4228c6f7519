//! Defines the metrics of the detector under Karmada's names (`pkg/metrics/resource.go`).

use std::sync::LazyLock;

use flotilla_metrics::{Counter, Histogram, ResultHistograms, exponential_buckets};

/// The metrics of the detector.
pub(crate) struct DetectorMetrics {
    pub(crate) match_policy_duration: Histogram,
    pub(crate) apply_policy_outcomes: ResultHistograms,
    apply_attempts: [Counter; 2],
    preemptions: [Counter; 2],
}

pub(crate) static DETECTOR_METRICS: LazyLock<DetectorMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    let buckets = exponential_buckets(0.001, 2.0, 12);
    let attempts = of.counters(
        "policy_apply_attempts_total",
        "Number of attempts to apply a propagation policy to a resource template.",
        ["result"],
    );
    let preemptions = of.counters(
        "policy_preemption_total",
        "Number of preemptions of a resource template by another propagation policy.",
        ["result"],
    );
    DetectorMetrics {
        match_policy_duration: of.histogram(
            "resource_match_policy_duration_seconds",
            "Duration in seconds to find a matched propagation policy for a resource template.",
            &buckets,
        ),
        apply_policy_outcomes: ResultHistograms::new(
            of,
            "resource_apply_policy_duration_seconds",
            "Duration in seconds to apply a propagation policy to a resource template.",
            &buckets,
        ),
        apply_attempts: ["success", "error"].map(|result| attempts.with_label_values([result])),
        preemptions: ["success", "error"].map(|result| preemptions.with_label_values([result])),
    }
});

impl DetectorMetrics {
    pub(crate) fn record_apply_attempt(&self, success: bool) {
        self.apply_attempts[usize::from(!success)].inc();
    }

    pub(crate) fn record_preemption(&self, success: bool) {
        self.preemptions[usize::from(!success)].inc();
    }
}
