//! Metrics and spans of webhook calls, named as in kube-apiserver (`admission/metrics`).

use std::sync::LazyLock;
use std::time::Duration;

use flotilla_metrics::{Counter, Histogram, MetricVec};
use flotilla_tracing::{KeyValue, Span, start_child_span};

use super::admission_review::WebhookDecision;
use super::configuration::AdmissionWebhook;
use crate::attributes::AdmissionAttributes;

/// The code of a call that fails: "error calling webhook" is a 503.
const CALL_FAILED_CODE: u16 = 503;
/// Larger codes of webhooks are counted as this one.
const MAX_CODE: u16 = 600;

/// Whether a webhook changes or checks objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionWebhookType {
    Mutating,
    Validating,
}

impl AdmissionWebhookType {
    fn label(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }

    fn span_name(self) -> &'static str {
        match self {
            Self::Mutating => "Call mutating webhook",
            Self::Validating => "Call validating webhook",
        }
    }
}

struct AdmissionWebhookMetricFamilies {
    durations: MetricVec<Histogram, 4>,
    requests: MetricVec<Counter, 5>,
    rejections: MetricVec<Counter, 5>,
    failures_ignored: MetricVec<Counter, 2>,
}

static METRIC_FAMILIES: LazyLock<AdmissionWebhookMetricFamilies> = LazyLock::new(|| {
    let registry = flotilla_metrics::process_registry();
    AdmissionWebhookMetricFamilies {
        durations: registry.histograms(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Admission webhook latency in seconds, by webhook, operation and type (validating or admit).",
            &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0],
            ["name", "type", "operation", "rejected"],
        ),
        requests: registry.counters(
            "apiserver_admission_webhook_request_total",
            "Calls of admission webhooks, by webhook, operation, type and HTTP status code.",
            ["name", "type", "operation", "code", "rejected"],
        ),
        rejections: registry.counters(
            "apiserver_admission_webhook_rejection_count",
            "Requests that admission webhooks rejected, by webhook, operation, type, error type and code.",
            ["name", "type", "operation", "error_type", "rejection_code"],
        ),
        failures_ignored: registry.counters(
            "apiserver_admission_webhook_fail_open_count",
            "Failed calls of admission webhooks whose failure policy is Ignore.",
            ["name", "type"],
        ),
    }
});

/// Records a call of a webhook that took `duration`.
pub(super) fn observe_call(
    hook: &AdmissionWebhook,
    webhook_type: AdmissionWebhookType,
    attributes: &AdmissionAttributes<'_>,
    duration: Duration,
    decision: &Result<WebhookDecision, String>,
) {
    let families = &*METRIC_FAMILIES;
    let (name, label) = (&*hook.name, webhook_type.label());
    let operation = attributes.operation.as_str();
    // The code, and the type of the error that rejects the request.
    let (code, rejected_by) = match decision {
        Ok(review) => match &review.result {
            Ok(()) => (200, None),
            Err(status) => (status.code.min(MAX_CODE), Some("no_error")),
        },
        Err(_) if hook.ignore_failures => {
            families
                .failures_ignored
                .with_label_values([name, label])
                .inc();
            (CALL_FAILED_CODE, None)
        }
        Err(_) => (CALL_FAILED_CODE, Some("calling_webhook_error")),
    };
    let code = code.to_string();
    let rejected = if rejected_by.is_some() {
        "true"
    } else {
        "false"
    };
    if let Some(error_type) = rejected_by {
        let labels = [name, label, operation, error_type, &code];
        families.rejections.with_label_values(labels).inc();
    }
    let labels = [name, label, operation, &code, rejected];
    families.requests.with_label_values(labels).inc();
    let durations = &families.durations;
    durations
        .with_label_values([name, label, operation, rejected])
        .observe(duration.as_secs_f64());
}

/// Starts the span of a webhook call, with the attributes of kube-apiserver's.
pub(super) fn start_span(
    hook: &AdmissionWebhook,
    webhook_type: AdmissionWebhookType,
    attributes: &AdmissionAttributes<'_>,
    uid: &str,
) -> Option<Span> {
    start_child_span(webhook_type.span_name(), || {
        vec![
            KeyValue::new("webhook", hook.name.clone()),
            KeyValue::new("resource", attributes.gvr.to_string()),
            KeyValue::new("subresource", attributes.subresource.to_owned()),
            KeyValue::new("operation", attributes.operation.as_str()),
            KeyValue::new("UID", uid.to_owned()),
        ]
    })
}
