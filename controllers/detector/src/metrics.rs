//! Defines the metrics of propagation under Karmada's names (`pkg/metrics/resource.go`).

use std::sync::LazyLock;

use flotilla_metrics::{Counter, Histogram, MetricVec, ResultHistograms, exponential_buckets};

/// The metrics of all propagation controllers.
pub(crate) struct PropagationMetrics {
    pub(crate) match_policy_duration: Histogram,
    pub(crate) apply_policy_outcomes: ResultHistograms,
    apply_attempts: [Counter; 2],
    preemptions: [Counter; 2],
    pub(crate) sync_work_outcomes: ResultHistograms,
    pub(crate) sync_workload_outcomes: ResultHistograms,
    created_objects: MetricVec<Counter, 5>,
    updated_objects: MetricVec<Counter, 5>,
    deleted_objects: MetricVec<Counter, 4>,
}

pub(crate) static PROPAGATION_METRICS: LazyLock<PropagationMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    let buckets = exponential_buckets(0.001, 2.0, 12);
    let outcomes = |name, help| ResultHistograms::new(of, name, help, &buckets);
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
    PropagationMetrics {
        match_policy_duration: of.histogram(
            "resource_match_policy_duration_seconds",
            "Duration in seconds to find a matched propagation policy for a resource template.",
            &buckets,
        ),
        apply_policy_outcomes: outcomes(
            "resource_apply_policy_duration_seconds",
            "Duration in seconds to apply a propagation policy to a resource template.",
        ),
        apply_attempts: ["success", "error"].map(|result| attempts.with_label_values([result])),
        preemptions: ["success", "error"].map(|result| preemptions.with_label_values([result])),
        sync_work_outcomes: outcomes(
            "binding_sync_work_duration_seconds",
            "Duration in seconds to sync the works of a binding.",
        ),
        sync_workload_outcomes: outcomes(
            "work_sync_workload_duration_seconds",
            "Duration in seconds to sync the workload of a work to the member cluster.",
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
    }
});

/// The value of the `result` label.
fn result_label(success: bool) -> &'static str {
    if success { "success" } else { "error" }
}

impl PropagationMetrics {
    pub(crate) fn record_apply_attempt(&self, success: bool) {
        self.apply_attempts[usize::from(!success)].inc();
    }

    pub(crate) fn record_preemption(&self, success: bool) {
        self.preemptions[usize::from(!success)].inc();
    }

    /// `recreate`: the object had been applied before and was missing.
    pub(crate) fn record_create(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
        recreate: bool,
    ) {
        let recreate = if recreate { "true" } else { "false" };
        let labels = [result_label(success), api_version, kind, cluster, recreate];
        self.created_objects.with_label_values(labels).inc();
    }

    /// `wrote`: whether the member's object was written.
    pub(crate) fn record_update(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
        wrote: bool,
    ) {
        let operation = match (success, wrote) {
            (false, _) => "none",
            (true, false) => "unchanged",
            (true, true) => "updated",
        };
        let labels = [result_label(success), api_version, kind, cluster, operation];
        self.updated_objects.with_label_values(labels).inc();
    }

    pub(crate) fn record_delete(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
    ) {
        let labels = [result_label(success), api_version, kind, cluster];
        self.deleted_objects.with_label_values(labels).inc();
    }
}
