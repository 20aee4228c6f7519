//! The metrics of backend stores, of the replica that leads.

use std::sync::LazyLock;

use flotilla_metrics::{Counter, Gauge, Histogram, MetricVec, exponential_buckets};

struct BackendStoreMetricFamilies {
    available: MetricVec<Gauge, 1>,
    pending: MetricVec<Gauge, 1>,
    documents: MetricVec<Counter, 2>,
    durations: MetricVec<Histogram, 2>,
}

static METRIC_FAMILIES: LazyLock<BackendStoreMetricFamilies> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    BackendStoreMetricFamilies {
        available: of.gauges(
            "flotilla_search_backend_available",
            "Whether a backend store of the search takes requests.",
            ["backend"],
        ),
        pending: of.gauges(
            "flotilla_search_backend_pending_documents",
            "Documents that wait to be written to a backend store.",
            ["backend"],
        ),
        documents: of.counters(
            "flotilla_search_backend_documents_total",
            "Writes of documents by result: indexed, deleted, retried, or rejected for good.",
            ["backend", "result"],
        ),
        durations: of.histograms(
            "flotilla_search_backend_request_duration_seconds",
            "Time of a request that writes documents, by result: success or error.",
            &exponential_buckets(0.005, 2.0, 14),
            ["backend", "result"],
        ),
    }
});

const DOCUMENT_RESULTS: [&str; 4] = ["indexed", "deleted", "retried", "rejected"];
const REQUEST_RESULTS: [&str; 2] = ["success", "error"];

/// The metrics of one store; its series end with it.
pub(crate) struct BackendStoreMetrics {
    backend: String,
    pub(crate) available: Gauge,
    pub(crate) pending: Gauge,
    pub(crate) indexed: Counter,
    pub(crate) deleted: Counter,
    pub(crate) retried: Counter,
    pub(crate) rejected: Counter,
    pub(crate) succeeded: Histogram,
    pub(crate) failed: Histogram,
}

impl BackendStoreMetrics {
    pub(crate) fn new(backend: String) -> Self {
        let of = &*METRIC_FAMILIES;
        let [indexed, deleted, retried, rejected] =
            DOCUMENT_RESULTS.map(|result| of.documents.with_label_values([&backend, result]));
        let [succeeded, failed] =
            REQUEST_RESULTS.map(|result| of.durations.with_label_values([&backend, result]));
        Self {
            available: of.available.with_label_values([&backend]),
            pending: of.pending.with_label_values([&backend]),
            indexed,
            deleted,
            retried,
            rejected,
            succeeded,
            failed,
            backend,
        }
    }
}

impl Drop for BackendStoreMetrics {
    fn drop(&mut self) {
        let (of, backend) = (&*METRIC_FAMILIES, &*self.backend);
        of.available.remove_label_values([backend]);
        of.pending.remove_label_values([backend]);
        for result in DOCUMENT_RESULTS {
            of.documents.remove_label_values([backend, result]);
        }
        for result in REQUEST_RESULTS {
            of.durations.remove_label_values([backend, result]);
        }
    }
}
