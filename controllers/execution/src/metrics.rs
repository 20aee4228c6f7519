//! Defines the metrics of the execution controller, under Karmada's names (`pkg/metrics/resource.go`)
//! where it has them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use flotilla_metrics::{Counter, MetricVec, ResultHistograms, exponential_buckets};

/// The metrics of the execution controller.
pub(crate) struct ExecutionMetrics {
    pub(crate) sync_workload_outcomes: ResultHistograms,
    created_objects: MetricVec<Counter, 5>,
    updated_objects: MetricVec<Counter, 5>,
    deleted_objects: MetricVec<Counter, 4>,
    drift_repairs: MetricVec<Counter, 2>,
}

pub(crate) static EXECUTION_METRICS: LazyLock<ExecutionMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    ExecutionMetrics {
        sync_workload_outcomes: ResultHistograms::new(
            of,
            "work_sync_workload_duration_seconds",
            "Duration in seconds to sync the workload of a work to the member cluster.",
            &exponential_buckets(0.001, 2.0, 12),
        ),
        created_objects: of.counters(
            "create_resource_to_cluster",
            "Number of creations of resources in member clusters.",
            ["result", "apiversion", "kind", "member_cluster", "recreate"],
        ),
        updated_objects: of.counters(
            "update_resource_to_cluster",
            "Number of updates of resources in member clusters, including those that changed nothing.",
            [
                "result",
                "apiversion",
                "kind",
                "member_cluster",
                "operationResult",
            ],
        ),
        deleted_objects: of.counters(
            "delete_resource_from_cluster",
            "Number of deletions of resources from member clusters.",
            ["result", "apiversion", "kind", "member_cluster"],
        ),
        drift_repairs: of.counters(
            "flotilla_drift_repairs_total",
            "Repairs of objects that somebody in a member cluster had changed or deleted.",
            ["kind", "member_cluster"],
        ),
    }
});

/// The objects that this process has written to members.
static MEMBER_WRITES: AtomicU64 = AtomicU64::new(0);

/// The objects that this process has created, changed or deleted in members since its start.
pub fn member_writes() -> u64 {
    MEMBER_WRITES.load(Ordering::Relaxed)
}

fn count_write(is_written: bool) {
    MEMBER_WRITES.fetch_add(u64::from(is_written), Ordering::Relaxed);
}

/// The value of the `result` label.
fn result_label(success: bool) -> &'static str {
    if success { "success" } else { "error" }
}

impl ExecutionMetrics {
    /// `recreate`: the object had been applied before and was missing.
    pub(crate) fn record_create(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
        recreate: bool,
    ) {
        count_write(success);
        let recreate = if recreate { "true" } else { "false" };
        let labels = [result_label(success), api_version, kind, cluster, recreate];
        self.created_objects.with_label_values(labels).inc();
    }

    /// `wrote`: whether the member's object has changed by it. A member may have had already what its
    /// defaults make of the object.
    pub(crate) fn record_update(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
        wrote: bool,
    ) {
        count_write(success && wrote);
        let operation = match (success, wrote) {
            (false, _) => "none",
            (true, false) => "unchanged",
            (true, true) => "updated",
        };
        let labels = [result_label(success), api_version, kind, cluster, operation];
        self.updated_objects.with_label_values(labels).inc();
    }

    pub(crate) fn record_drift_repair(&self, kind: &str, cluster: &str) {
        self.drift_repairs.with_label_values([kind, cluster]).inc();
    }

    pub(crate) fn record_delete(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
    ) {
        count_write(success);
        let labels = [result_label(success), api_version, kind, cluster];
        self.deleted_objects.with_label_values(labels).inc();
    }
}
