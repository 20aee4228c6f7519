//! The metrics of the calls to each member.
//!
//! The metrics of a member are resolved when it is connected; its series end with the
//! last connection.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use client::Error;
use flotilla_metrics::{Counter, Family, Gauge, Histogram};
use parking_lot::Mutex;

const MEMBER: [&str; 1] = ["member_cluster"];
const BUCKETS: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// The verb of a call to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

const VERBS: [&str; 7] = [
    "get",
    "list",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

struct Families {
    durations: Family<Histogram, 2>,
    errors: Family<Counter, 2>,
    in_flight: Family<Gauge, 1>,
    limits: Family<Gauge, 1>,
}

static FAMILIES: LazyLock<Families> = LazyLock::new(|| {
    let of = flotilla_metrics::process();
    Families {
        durations: of.histograms(
            "flotilla_member_request_duration_seconds",
            "Duration of calls to a member, without the wait for the concurrency limit.",
            &BUCKETS,
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
            MEMBER,
        ),
        limits: of.gauges(
            "flotilla_member_requests_limit",
            "Limit of concurrent calls to a member, which adapts to its latency and refusals.",
            MEMBER,
        ),
    }
});

const REASONS: [&str; 3] = ["transport", "refused", "server"];

/// The metrics of one member.
pub(crate) struct Figures {
    member: String,
    durations: [OnceLock<Histogram>; 7],
    errors: [OnceLock<Counter>; 3],
    pub(crate) in_flight: Gauge,
    pub(crate) limit: Gauge,
}

/// The number of connections of each member: a new one may open before the old one has
/// ended.
static OPEN: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

impl Figures {
    pub(crate) fn new(member: &str) -> Self {
        *OPEN.lock().entry(member.to_owned()).or_default() += 1;
        Self {
            member: member.to_owned(),
            durations: Default::default(),
            errors: Default::default(),
            in_flight: FAMILIES.in_flight.with([member]),
            limit: FAMILIES.limits.with([member]),
        }
    }

    /// Observes a call. Only transport errors, 429 and 5xx count as errors; "not found"
    /// or a conflict does not.
    pub(crate) fn called(&self, verb: Verb, took: Duration, error: Option<&Error>) {
        let of_verb = self.durations[verb as usize].get_or_init(|| {
            FAMILIES
                .durations
                .with([&self.member, VERBS[verb as usize]])
        });
        of_verb.observe(took.as_secs_f64());
        let reason = match error {
            Some(Error::Transport { .. } | Error::Protocol(_)) => 0,
            Some(Error::Status(status)) if status.code == 429 => 1,
            Some(Error::Status(status)) if status.code >= 500 => 2,
            _ => return,
        };
        self.errors[reason]
            .get_or_init(|| FAMILIES.errors.with([&self.member, REASONS[reason]]))
            .inc();
    }
}

impl Drop for Figures {
    fn drop(&mut self) {
        let member = self.member.as_str();
        let mut open = OPEN.lock();
        if let Some(others) = open.get_mut(member).filter(|n| **n > 1) {
            *others -= 1;
            return;
        }
        open.remove(member);
        for verb in VERBS {
            FAMILIES.durations.forget([member, verb]);
        }
        for reason in REASONS {
            FAMILIES.errors.forget([member, reason]);
        }
        FAMILIES.in_flight.forget([member]);
        FAMILIES.limits.forget([member]);
    }
}
