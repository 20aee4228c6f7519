//! Metrics of ValidatingAdmissionPolicies, named as in kube-apiserver
//! (`admission/plugin/policy/validating/metrics`).

use std::sync::LazyLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Histogram, MetricVec};

struct ValidatingPolicyMetricFamilies {
    checks: MetricVec<Counter, 4>,
    durations: MetricVec<Histogram, 4>,
}

static METRIC_FAMILIES: LazyLock<ValidatingPolicyMetricFamilies> = LazyLock::new(|| {
    let registry = flotilla_metrics::process_registry();
    let labels = [
        "policy",
        "policy_binding",
        "error_type",
        "enforcement_action",
    ];
    ValidatingPolicyMetricFamilies {
        checks: registry.counters(
            "apiserver_validating_admission_policy_check_total",
            "Checks of validating admission policies that failed, by policy, binding and enforcement action taken.",
            labels,
        ),
        durations: registry.histograms(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "Latency of single validation expressions in seconds, by policy, binding and enforcement action taken.",
            &[0.0000005, 0.001, 0.01, 0.1, 1.0],
            labels,
        ),
    }
});

/// Records what was done about a validation that is violated or failed. `action` is `deny`,
/// `warn`, `audit`, or `allow` for an error that is ignored.
pub(super) fn observe_check(
    policy: &str,
    binding: &str,
    message: &str,
    action: &str,
    duration_of_check: Duration,
) {
    let labels = [policy, binding, error_type(message), action];
    METRIC_FAMILIES.checks.with_label_values(labels).inc();
    let duration = METRIC_FAMILIES.durations.with_label_values(labels);
    duration.observe(duration_of_check.as_secs_f64());
}

/// The type of an error by its message. As in kube-apiserver, a violated validation is an
/// `invalid_error`.
fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

#[cfg(test)]
mod tests {
    use kubernetes_cel::AdmissionEvaluationError;

    use super::*;

    #[test]
    fn errors_have_their_type() {
        for (message, expected) in [
            ("compilation failed: x", "compile_error"),
            (
                AdmissionEvaluationError::out_of_budget_text(),
                "out_of_budget",
            ),
            ("failed expression: false", "invalid_error"),
        ] {
            assert_eq!(error_type(message), expected);
        }
    }
}
