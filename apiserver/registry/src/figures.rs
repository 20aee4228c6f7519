//! Metrics of the store and of the watch caches, named as in kube-apiserver where it has them
//! (`storage/etcd3/metrics`, `storage/cacher/metrics`).
//!
//! Calls to the store are observed as they happen; the counters of the caches are read when
//! metrics are scraped. The series of a resource are created at its first call.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use machinery::Gvr;
use flotilla_metrics::{Counter, Family, Figure, Histogram, Readings, Shape};

use crate::registry::Registry;

/// The buckets of kube-apiserver.
const BUCKETS: [f64; 20] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0,
];
const OPERATION: [&str; 3] = ["operation", "group", "resource"];
const RESOURCE: &[&str] = &["group", "resource"];

/// An operation on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Metrics of calls to the store, of all resources.
pub(crate) struct Figures {
    durations: Family<Histogram, 3>,
    requests: Family<Counter, 3>,
    errors: Family<Counter, 3>,
}

impl Figures {
    pub(crate) fn new(registry: &flotilla_metrics::Registry) -> Self {
        Self {
            durations: registry.histograms(
                "etcd_request_duration_seconds",
                "Latency of calls to the store in seconds.",
                &BUCKETS,
                OPERATION,
            ),
            requests: registry.counters("etcd_requests_total", "Calls to the store.", OPERATION),
            errors: registry.counters(
                "etcd_request_errors_total",
                "Calls to the store that failed.",
                OPERATION,
            ),
        }
    }
}

struct Timing {
    duration: Histogram,
    requests: Counter,
    errors: Counter,
}

/// Metrics of calls to the store for one resource, by operation.
#[derive(Default)]
pub(crate) struct Timings([OnceLock<Timing>; 4]);

impl Timings {
    /// Records a call. A transaction whose precondition failed counts as a success.
    pub(crate) fn observe(
        &self,
        figures: &Figures,
        of: &Gvr,
        operation: Operation,
        took: Duration,
        success: bool,
    ) {
        let timing = self.0[operation as usize].get_or_init(|| {
            let labels = [operation.as_str(), of.group.as_ref(), of.resource.as_ref()];
            Timing {
                duration: figures.durations.with(labels),
                requests: figures.requests.with(labels),
                errors: figures.errors.with(labels),
            }
        });
        timing.duration.observe(took.as_secs_f64());
        timing.requests.inc();
        if !success {
            timing.errors.inc();
        }
    }
}

const fn counter(name: &'static str, help: &'static str) -> Figure {
    Figure::new(name, help, Shape::Counter, RESOURCE)
}

const fn gauge(name: &'static str, help: &'static str) -> Figure {
    Figure::new(name, help, Shape::Gauge, RESOURCE)
}

/// The metrics that [`collect_cache_metrics`] sets.
const CACHES: [Figure; 17] = [
    gauge("apiserver_resource_objects", "Number of stored objects."),
    Figure::new(
        "apiserver_storage_objects",
        "Number of stored objects.",
        Shape::Gauge,
        &["resource"],
    ),
    gauge(
        "apiserver_watch_cache_resource_version",
        "Revision up to which the watch cache is current.",
    ),
    counter(
        "apiserver_watch_cache_events_received_total",
        "Events received from the store.",
    ),
    counter(
        "apiserver_watch_cache_events_dispatched_total",
        "Events encoded for watchers, once for all of them.",
    ),
    counter(
        "apiserver_watch_cache_initializations_total",
        "Initializations of the watch cache.",
    ),
    gauge(
        "watch_cache_capacity",
        "Events in the ring of the watch cache.",
    ),
    gauge(
        "flotilla_watch_cache_ring_bytes",
        "Bytes of the events in the ring of the watch cache.",
    ),
    Figure::new(
        "flotilla_watch_cache_ring_limit_bytes",
        "Maximum bytes of the events in the rings of all watch caches.",
        Shape::Gauge,
        &[],
    ),
    gauge(
        "flotilla_watchers",
        "Open watches, including those of this process.",
    ),
    counter(
        "apiserver_terminated_watchers_total",
        "Watches that the server terminated early.",
    ),
    counter(
        "flotilla_watch_history_reads_total",
        "Reads of the store's history by watchers that were behind the ring.",
    ),
    counter(
        "apiserver_cache_list_total",
        "Lists served by the watch cache.",
    ),
    counter("apiserver_storage_list_total", "Lists served by the store."),
    counter(
        "apiserver_cache_list_returned_objects_total",
        "Objects returned by lists.",
    ),
    Figure::new(
        "apiserver_watch_cache_consistent_read_total",
        "Consistent reads, by whether the watch cache could serve them.",
        Shape::Counter,
        &["group", "resource", "success", "fallback"],
    ),
    Figure::new(
        "flotilla_store_revision",
        "The highest revision of a watch cache.",
        Shape::Counter,
        &[],
    ),
];

/// Registers the metrics of the caches, which are collected at each scrape.
pub(crate) fn read(metrics: &flotilla_metrics::Registry, registry: &Arc<Registry>) {
    let registry = Arc::downgrade(registry);
    metrics.read(&CACHES, move |readings| {
        if let Some(registry) = Weak::upgrade(&registry) {
            tell(&registry, readings);
        }
    });
}

fn tell(registry: &Registry, readings: &mut Readings<'_>) {
    let table = registry.table();
    // The versions of a kind share their storage.
    let mut counted: HashSet<&str> = HashSet::new();
    let mut newest = 0;
    for info in table.rows() {
        let stored = &info.stored;
        if !counted.insert(stored.cache.prefix()) {
            continue;
        }
        let gvr = &stored.kind.gvr;
        let by: &[&str] = &[&gvr.group, &gvr.resource];
        let stats = stored.cache.stats();
        let used = stats.fills > 0;
        let busy = stats.lists + stats.lists_from_store > 0;
        let mut set = |name: &str, value: u64| readings.set(name, by, value as f64);
        if used {
            let revision = stored.cache.revision();
            newest = newest.max(revision);
            set("apiserver_resource_objects", stats.objects as u64);
            set("apiserver_watch_cache_resource_version", revision);
            set("apiserver_watch_cache_events_received_total", stats.events);
            set(
                "apiserver_watch_cache_events_dispatched_total",
                stats.encodings,
            );
            set("apiserver_watch_cache_initializations_total", stats.fills);
            set("watch_cache_capacity", stats.ring_events as u64);
            set("flotilla_watch_cache_ring_bytes", stats.ring_bytes as u64);
            set("apiserver_terminated_watchers_total", stats.terminated);
            set("flotilla_watch_history_reads_total", stats.from_history);
        }
        if used || stats.watchers > 0 {
            set("flotilla_watchers", stats.watchers as u64);
        }
        if busy {
            set("apiserver_cache_list_total", stats.lists);
            set("apiserver_storage_list_total", stats.lists_from_store);
            set("apiserver_cache_list_returned_objects_total", stats.listed);
        }
        if used {
            let name = match &*gvr.group {
                "" => gvr.resource.to_string(),
                group => format!("{}.{group}", gvr.resource),
            };
            readings.set("apiserver_storage_objects", &[&name], stats.objects as f64);
        }
        let [group, resource] = [&*gvr.group, &*gvr.resource];
        for (count, success, fallback) in [
            (stats.proven, "true", "false"),
            (stats.unproven, "false", "true"),
        ] {
            if count > 0 {
                let by = &[group, resource, success, fallback];
                let name = "apiserver_watch_cache_consistent_read_total";
                readings.set(name, by, count as f64);
            }
        }
    }
    readings.set("flotilla_store_revision", &[], newest as f64);
    let limit = registry.hub.config().ring_bytes as f64;
    readings.set("flotilla_watch_cache_ring_limit_bytes", &[], limit);
}
