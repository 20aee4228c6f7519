//! Records who requested what, as audit events (`k8s.io/apiserver/pkg/audit`).
//!
//! request ──► [`RequestAudit`] (level by [`AuditPolicy`]) ──stages──► [`AuditEventQueue`] ──► [`AuditLogFile`] | [`AuditWebhook`]
//!
//! Invariants: without an [`Auditor`] a request costs one test of an option. An event is
//! encoded once for all backends. A request never waits for a backend: what a queue
//! cannot hold is dropped and counted. Credentials are never in an event.

mod event;
mod event_queue;
mod level_and_stage;
mod log_file;
mod policy;
mod policy_document;
mod redaction;
mod request_audit;
mod webhook;

use std::sync::Arc;

use flotilla_metrics::{Counter, MetricVec, MetricsRegistry};
use machinery::time::Clock;

pub(crate) use event::SourceRequest;
pub use event_queue::{AuditErrorCounters, AuditEventQueue};
pub use log_file::{AuditLogFile, AuditLogRotation, start_stdout_log};
pub use policy::AuditPolicy;
pub(crate) use request_audit::RequestAudit;
pub use webhook::{AuditWebhook, AuditWebhookBatching};

/// The audit policy and the queues of the backends.
pub struct Auditor {
    policy: AuditPolicy,
    queues: Vec<AuditEventQueue>,
    clock: Arc<dyn Clock>,
    events: Counter,
    levels: MetricVec<Counter, 1>,
}

impl Auditor {
    pub fn new(
        policy: AuditPolicy,
        queues: Vec<AuditEventQueue>,
        clock: Arc<dyn Clock>,
        metrics: &MetricsRegistry,
    ) -> Arc<Self> {
        Arc::new(Self {
            policy,
            queues,
            clock,
            events: metrics.counter(
                "apiserver_audit_event_total",
                "Counter of audit events generated and sent to the audit backend.",
            ),
            levels: metrics.counters(
                "apiserver_audit_level_total",
                "Counter of policy levels for audit events (1 per request).",
                ["level"],
            ),
        })
    }
}
