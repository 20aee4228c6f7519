//! Defines the metric of the binding controller under Karmada's name (`pkg/metrics/resource.go`).

use std::sync::LazyLock;

use flotilla_metrics::{ResultHistograms, exponential_buckets};

pub(crate) static SYNC_WORK_OUTCOMES: LazyLock<ResultHistograms> = LazyLock::new(|| {
    ResultHistograms::new(
        flotilla_metrics::process_registry(),
        "binding_sync_work_duration_seconds",
        "Duration in seconds to sync the works of a binding.",
        &exponential_buckets(0.001, 2.0, 12),
    )
});
