//! Metrics of authorizers, with kube-apiserver's names.

use std::time::Duration;

use flotilla_metrics::{Counter, Histogram, MetricVec, MetricsRegistry};

const DEFAULT_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const MATCH_CONDITION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
/// The label `type` of webhooks.
pub(crate) const WEBHOOK: &str = "Webhook";

/// The metrics of the authorizers of one server.
#[derive(Clone)]
pub struct AuthorizerMetrics {
    decisions: MetricVec<Counter, 3>,
    evaluations: MetricVec<Counter, 2>,
    durations: MetricVec<Histogram, 2>,
    failed_open: MetricVec<Counter, 2>,
    condition_errors: MetricVec<Counter, 2>,
    condition_exclusions: MetricVec<Counter, 2>,
    condition_seconds: MetricVec<Histogram, 2>,
}

impl AuthorizerMetrics {
    pub fn new(registry: &MetricsRegistry) -> Self {
        Self {
            decisions: registry.counters(
                "apiserver_authorization_decisions_total",
                "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
                ["type", "name", "decision"],
            ),
            evaluations: registry.counters(
                "apiserver_authorization_webhook_evaluations_total",
                "Round-trips to authorization webhooks.",
                ["name", "result"],
            ),
            durations: registry.histograms(
                "apiserver_authorization_webhook_duration_seconds",
                "Request latency in seconds.",
                &DEFAULT_BUCKETS,
                ["name", "result"],
            ),
            failed_open: registry.counters(
                "apiserver_authorization_webhook_evaluations_fail_open_total",
                "NoOpinion results due to webhook timeout or error.",
                ["name", "result"],
            ),
            condition_errors: registry.counters(
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
                ["type", "name"],
            ),
            condition_exclusions: registry.counters(
                "apiserver_authorization_match_condition_exclusions_total",
                "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
                ["type", "name"],
            ),
            condition_seconds: registry.histograms(
                "apiserver_authorization_match_condition_evaluation_seconds",
                "Authorization match condition evaluation time in seconds, split by authorizer type and name.",
                &MATCH_CONDITION_BUCKETS,
                ["type", "name"],
            ),
        }
    }

    pub(crate) fn count_decision(&self, kind: &str, name: &str, decision: &str) {
        self.decisions
            .with_label_values([kind, name, decision])
            .inc();
    }

    pub(crate) fn observe_webhook(&self, name: &str, result: &str, duration: Duration) {
        self.evaluations.with_label_values([name, result]).inc();
        let durations = self.durations.with_label_values([name, result]);
        durations.observe(duration.as_secs_f64());
    }

    pub(crate) fn count_fail_open(&self, name: &str, result: &str) {
        self.failed_open.with_label_values([name, result]).inc();
    }

    pub(crate) fn observe_match_conditions(
        &self,
        name: &str,
        duration: Duration,
        result: &Result<bool, String>,
    ) {
        let labels = [WEBHOOK, name];
        let seconds = self.condition_seconds.with_label_values(labels);
        seconds.observe(duration.as_secs_f64());
        match result {
            Ok(true) => {}
            Ok(false) => self.condition_exclusions.with_label_values(labels).inc(),
            Err(_) => self.condition_errors.with_label_values(labels).inc(),
        }
    }
}
