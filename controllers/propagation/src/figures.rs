//! Defines the metrics of propagation under Karmada's names (`pkg/metrics/resource.go`).

use std::sync::LazyLock;

use flotilla_metrics::{Counter, Family, Histogram, Outcomes, exponential};

/// The metrics of all propagation controllers.
pub(crate) struct Figures {
    pub(crate) matched: Histogram,
    pub(crate) applied: Outcomes,
    attempts: [Counter; 2],
    preemptions: [Counter; 2],
    pub(crate) synced: Outcomes,
    pub(crate) executed: Outcomes,
    created: Family<Counter, 5>,
    updated: Family<Counter, 5>,
    deleted: Family<Counter, 4>,
}

pub(crate) static FIGURES: LazyLock<Figures> = LazyLock::new(|| {
    let of = flotilla_metrics::process();
    let buckets = exponential(0.001, 2.0, 12);
    let outcomes = |name, help| Outcomes::new(of, name, help, &buckets);
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
    Figures {
        matched: of.histogram(
            "resource_match_policy_duration_seconds",
            "Duration in seconds to find a matched propagation policy for a resource template.",
            &buckets,
        ),
        applied: outcomes(
            "resource_apply_policy_duration_seconds",
            "Duration in seconds to apply a propagation policy to a resource template.",
        ),
        attempts: ["success", "error"].map(|result| attempts.with([result])),
        preemptions: ["success", "error"].map(|result| preemptions.with([result])),
        synced: outcomes(
            "binding_sync_work_duration_seconds",
            "Duration in seconds to sync the works of a binding.",
        ),
        executed: outcomes(
            "work_sync_workload_duration_seconds",
            "Duration in seconds to sync the workload of a work to the member cluster.",
        ),
        created: of.counters(
            "create_resource_to_cluster",
            "Number of creations of resources in member clusters.",
            ["result", "apiversion", "kind", "member_cluster", "recreate"],
        ),
        updated: of.counters(
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
        deleted: of.counters(
            "delete_resource_from_cluster",
            "Number of deletions of resources from member clusters.",
            ["result", "apiversion", "kind", "member_cluster"],
        ),
    }
});

/// The value of the `result` label.
fn result(success: bool) -> &'static str {
    if success { "success" } else { "error" }
}

impl Figures {
    pub(crate) fn attempted(&self, success: bool) {
        self.attempts[usize::from(!success)].inc();
    }

    pub(crate) fn preempted(&self, success: bool) {
        self.preemptions[usize::from(!success)].inc();
    }

    /// `recreate`: the object had been applied before and was missing.
    pub(crate) fn created(
        &self,
        success: bool,
        (api_version, kind): (&str, &str),
        cluster: &str,
        recreate: bool,
    ) {
        let recreate = if recreate { "true" } else { "false" };
        let labels = [result(success), api_version, kind, cluster, recreate];
        self.created.with(labels).inc();
    }

    /// `wrote`: whether the member's object was written.
    pub(crate) fn updated(
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
        let labels = [result(success), api_version, kind, cluster, operation];
        self.updated.with(labels).inc();
    }

    pub(crate) fn deleted(&self, success: bool, (api_version, kind): (&str, &str), cluster: &str) {
        let labels = [result(success), api_version, kind, cluster];
        self.deleted.with(labels).inc();
    }
}
