//! Metrics of the watch caches, collected at each scrape.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType, CallbackMetricWriter};
use machinery::names::join_group;
use watchcache::{Cacher, WatchCacheStats};

use crate::registry::Registry;
use crate::resource_table::ResourceTable;

const RESOURCE_LABELS: &[&str] = &["group", "resource"];

const fn counter(name: &'static str, help: &'static str) -> CallbackMetricDesc {
    CallbackMetricDesc::new(name, help, CallbackMetricType::Counter, RESOURCE_LABELS)
}

const fn gauge(name: &'static str, help: &'static str) -> CallbackMetricDesc {
    CallbackMetricDesc::new(name, help, CallbackMetricType::Gauge, RESOURCE_LABELS)
}

/// The metrics that [`collect_cache_metrics`] sets.
const CACHE_METRICS: [CallbackMetricDesc; 17] = [
    gauge("apiserver_resource_objects", "Number of stored objects."),
    CallbackMetricDesc::new(
        "apiserver_storage_objects",
        "Number of stored objects.",
        CallbackMetricType::Gauge,
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
    CallbackMetricDesc::new(
        "flotilla_watch_cache_ring_limit_bytes",
        "Maximum bytes of the events in the rings of all watch caches.",
        CallbackMetricType::Gauge,
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
    CallbackMetricDesc::new(
        "apiserver_watch_cache_consistent_read_total",
        "Consistent reads, by whether the watch cache could serve them.",
        CallbackMetricType::Counter,
        &["group", "resource", "success", "fallback"],
    ),
    CallbackMetricDesc::new(
        "flotilla_store_revision",
        "The highest revision of a watch cache.",
        CallbackMetricType::Counter,
        &[],
    ),
];

impl Registry {
    /// Registers the metrics of the caches, which are collected at each scrape.
    pub(crate) fn register_cache_metrics(self: &Arc<Self>) {
        let registry = Arc::downgrade(self);
        self.options
            .metrics
            .register_callback(&CACHE_METRICS, move |writer| {
                if let Some(registry) = Weak::upgrade(&registry) {
                    collect_cache_metrics(&registry, writer);
                }
            });
    }
}

/// The caches of one resource: one for all versions of a built-in kind, one for each version
/// of a custom resource that has several.
struct ResourceCaches<'a> {
    group: &'a str,
    resource: &'a str,
    cachers: Vec<&'a Cacher>,
}

/// The caches of the resources that this table serves, each once.
fn caches_by_resource(table: &ResourceTable) -> Vec<ResourceCaches<'_>> {
    let mut caches: Vec<ResourceCaches<'_>> = Vec::new();
    let mut by_prefix: HashMap<&str, usize> = HashMap::new();
    for info in table.resources() {
        let stored = &info.storage;
        let gvr = &stored.kind.gvr;
        let index = *by_prefix.entry(stored.cache.prefix()).or_insert_with(|| {
            caches.push(ResourceCaches {
                group: &gvr.group,
                resource: &gvr.resource,
                cachers: Vec::new(),
            });
            caches.len() - 1
        });
        let cachers = &mut caches[index].cachers;
        if !cachers.iter().any(|c| std::ptr::eq(*c, &*stored.cache)) {
            cachers.push(&stored.cache);
        }
    }
    caches
}

fn collect_cache_metrics(registry: &Registry, writer: &mut CallbackMetricWriter<'_>) {
    let table = registry.table();
    let mut newest = 0;
    for caches in caches_by_resource(&table) {
        newest = newest.max(collect_resource_metrics(&caches, writer));
    }
    writer.set("flotilla_store_revision", &[], newest as f64);
    let limit = registry.watch_caches.config().ring_bytes as f64;
    writer.set("flotilla_watch_cache_ring_limit_bytes", &[], limit);
}

/// Sets the metrics of one resource and returns the revision of its caches.
fn collect_resource_metrics(
    caches: &ResourceCaches<'_>,
    writer: &mut CallbackMetricWriter<'_>,
) -> u64 {
    let (group, resource) = (caches.group, caches.resource);
    let labels: &[&str] = &[group, resource];
    let mut stats = WatchCacheStats::default();
    let mut objects = 0;
    for cacher in &caches.cachers {
        let cacher_stats = cacher.stats();
        // Each cache has all objects.
        objects = objects.max(cacher_stats.objects);
        stats += &cacher_stats;
    }
    let used = stats.fills > 0;
    let busy = stats.lists + stats.lists_from_store > 0;
    let mut revision = 0;
    let mut set = |name: &str, value: u64| writer.set(name, labels, value as f64);
    if used {
        let revisions = caches.cachers.iter().map(|cacher| cacher.revision());
        revision = revisions.max().unwrap_or(0);
        set("apiserver_resource_objects", objects as u64);
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
        set(
            "apiserver_cache_list_returned_objects_total",
            stats.listed_objects,
        );
    }
    if used {
        let name = join_group(resource, group);
        writer.set("apiserver_storage_objects", &[&name], objects as f64);
    }
    for (count, success, fallback) in [
        (stats.consistent_from_cache, "true", "false"),
        (stats.consistent_from_store, "false", "true"),
    ] {
        if count > 0 {
            let labels = &[group, resource, success, fallback];
            let name = "apiserver_watch_cache_consistent_read_total";
            writer.set(name, labels, count as f64);
        }
    }
    revision
}
