//! The metrics of the calls to each member.
//!
//! The metrics of a member are resolved when it is connected; its series end with the
//! last connection.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use client::Error;
use flotilla_metrics::{Counter, Gauge, Histogram, MetricVec};
use parking_lot::Mutex;

const MEMBER_LABEL: [&str; 1] = ["member_cluster"];
const DURATION_BUCKETS: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// The verbs of the calls that are measured.
const VERBS: [&str; 7] = [
    "get",
    "list",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

struct MemberRequestMetricFamilies {
    durations: MetricVec<Histogram, 2>,
    errors: MetricVec<Counter, 2>,
    in_flight: MetricVec<Gauge, 1>,
    limits: MetricVec<Gauge, 1>,
}

static METRIC_FAMILIES: LazyLock<MemberRequestMetricFamilies> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    MemberRequestMetricFamilies {
        durations: of.histograms(
            "flotilla_member_request_duration_seconds",
            "Duration of calls to a member, without the wait for the concurrency limit.",
            &DURATION_BUCKETS,
            ["member_cluster", "verb"],
        ),
        errors: of.counters(
            "flotilla_member_request_errors_total",
            "Calls to a member that got no response, were refused with 429, or failed with a server error.",
            ["member_cluster", "reason"],
        ),
        in_flight: of.gauges(
            "flotilla_member_requests_in_flight",
            "Calls to a member in flight.",
            MEMBER_LABEL,
        ),
        limits: of.gauges(
            "flotilla_member_requests_limit",
            "Limit of concurrent calls to a member, which adapts to its latency and refusals.",
            MEMBER_LABEL,
        ),
    }
});

const REASONS: [&str; 3] = ["transport", "refused", "server"];

/// The metrics of one member.
pub(crate) struct MemberRequestMetrics {
    member: String,
    durations: [OnceLock<Histogram>; 7],
    errors: [OnceLock<Counter>; 3],
    pub(crate) in_flight: Gauge,
    pub(crate) limit: Gauge,
}

/// The number of connections of each member: a new one may open before the old one has
/// ended.
static CONNECTIONS_BY_MEMBER: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

impl MemberRequestMetrics {
    pub(crate) fn new(member: &str) -> Self {
        *CONNECTIONS_BY_MEMBER
            .lock()
            .entry(member.to_owned())
            .or_default() += 1;
        Self {
            member: member.to_owned(),
            durations: Default::default(),
            errors: Default::default(),
            in_flight: METRIC_FAMILIES.in_flight.with_label_values([member]),
            limit: METRIC_FAMILIES.limits.with_label_values([member]),
        }
    }

    /// Observes a call. Only transport errors, 429 and 5xx count as errors; "not found"
    /// or a conflict does not.
    pub(crate) fn observe_call(
        &self,
        verb: &'static str,
        duration: Duration,
        error: Option<&Error>,
    ) {
        if let Some(index) = VERBS.iter().position(|v| *v == verb) {
            let of_verb = self.durations[index].get_or_init(|| {
                METRIC_FAMILIES
                    .durations
                    .with_label_values([&*self.member, verb])
            });
            of_verb.observe(duration.as_secs_f64());
        }
        let reason = match error {
            Some(Error::Transport { .. } | Error::Protocol(_)) => 0,
            Some(Error::Status(status)) if status.code == 429 => 1,
            Some(Error::Status(status)) if status.code >= 500 => 2,
            _ => return,
        };
        self.errors[reason]
            .get_or_init(|| {
                METRIC_FAMILIES
                    .errors
                    .with_label_values([&self.member, REASONS[reason]])
            })
            .inc();
    }
}

impl Drop for MemberRequestMetrics {
    fn drop(&mut self) {
        let member = self.member.as_str();
        let mut open = CONNECTIONS_BY_MEMBER.lock();
        if let Some(open_count) = open.get_mut(member).filter(|n| **n > 1) {
            *open_count -= 1;
            return;
        }
        open.remove(member);
        for verb in VERBS {
            METRIC_FAMILIES
                .durations
                .remove_label_values([member, verb]);
        }
        for reason in REASONS {
            METRIC_FAMILIES.errors.remove_label_values([member, reason]);
        }
        METRIC_FAMILIES.in_flight.remove_label_values([member]);
        METRIC_FAMILIES.limits.remove_label_values([member]);
    }
}
