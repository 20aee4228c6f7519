//! Metrics of the store and of the watch caches, named as in kube-apiserver where it has them
//! (`storage/etcd3/metrics`, `storage/cacher/metrics`).
//!
//! Calls to the store are observed as they happen; the counters of the caches are read when
//! metrics are scraped. The series of a resource are created at its first call.

use std::sync::OnceLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Histogram, MetricVec};
use machinery::Gvr;

/// The buckets of kube-apiserver.
const DURATION_BUCKETS: [f64; 20] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0,
];
const OPERATION_LABELS: [&str; 3] = ["operation", "group", "resource"];

/// An operation on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreOperation {
    Get,
    Create,
    Update,
    Delete,
}

impl StoreOperation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Metrics of calls to the store, of all resources.
pub(crate) struct StoreCallMetricFamilies {
    durations: MetricVec<Histogram, 3>,
    requests: MetricVec<Counter, 3>,
    errors: MetricVec<Counter, 3>,
}

impl StoreCallMetricFamilies {
    pub(crate) fn new(registry: &flotilla_metrics::MetricsRegistry) -> Self {
        Self {
            durations: registry.histograms(
                "etcd_request_duration_seconds",
                "Latency of calls to the store in seconds.",
                &DURATION_BUCKETS,
                OPERATION_LABELS,
            ),
            requests: registry.counters(
                "etcd_requests_total",
                "Calls to the store.",
                OPERATION_LABELS,
            ),
            errors: registry.counters(
                "etcd_request_errors_total",
                "Calls to the store that failed.",
                OPERATION_LABELS,
            ),
        }
    }
}

struct StoreOperationMetrics {
    duration: Histogram,
    requests: Counter,
    errors: Counter,
}

/// Metrics of calls to the store for one resource, by operation.
#[derive(Default)]
pub(crate) struct ResourceStoreMetrics([OnceLock<StoreOperationMetrics>; 4]);

impl ResourceStoreMetrics {
    /// Records a call. A transaction whose precondition failed counts as a success.
    pub(crate) fn observe(
        &self,
        families: &StoreCallMetricFamilies,
        gvr: &Gvr,
        operation: StoreOperation,
        duration_of_call: Duration,
        success: bool,
    ) {
        let timing = self.0[operation as usize].get_or_init(|| {
            let labels = [
                operation.as_str(),
                gvr.group.as_ref(),
                gvr.resource.as_ref(),
            ];
            StoreOperationMetrics {
                duration: families.durations.with_label_values(labels),
                requests: families.requests.with_label_values(labels),
                errors: families.errors.with_label_values(labels),
            }
        });
        timing.duration.observe(duration_of_call.as_secs_f64());
        timing.requests.inc();
        if !success {
            timing.errors.inc();
        }
    }
}
