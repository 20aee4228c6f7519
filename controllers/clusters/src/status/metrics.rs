//! The metrics of member clusters, named as in Karmada (`pkg/metrics/cluster.go`).
//!
//! The gauges are computed from the Clusters at each scrape. A deleted Cluster has no
//! series, and neither has a process that is no longer the leader.

use std::sync::LazyLock;
use std::time::Duration;

use client::{Informer, ShutdownToken};
use flotilla_metrics::{
    CallbackMetricDesc, CallbackMetricType, CallbackMetricWriter, Histogram, MetricVec,
};
use karmada_api::Cluster;
use parking_lot::Mutex;

const MEMBER_LABEL: [&str; 1] = ["member_cluster"];
/// The default buckets of Prometheus' Go client.
const DURATION_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

const fn gauge_description(name: &'static str, help: &'static str) -> CallbackMetricDesc {
    CallbackMetricDesc::new(name, help, CallbackMetricType::Gauge, &MEMBER_LABEL)
}

const CLUSTER_GAUGES: [CallbackMetricDesc; 9] = [
    gauge_description(
        "cluster_ready_state",
        "State of the cluster(1 if ready, 0 otherwise).",
    ),
    gauge_description("cluster_node_number", "Number of nodes in the cluster."),
    gauge_description(
        "cluster_ready_node_number",
        "Number of ready nodes in the cluster.",
    ),
    gauge_description(
        "cluster_memory_allocatable_bytes",
        "Allocatable cluster memory resource in bytes.",
    ),
    gauge_description(
        "cluster_cpu_allocatable_number",
        "Number of allocatable CPU in the cluster.",
    ),
    gauge_description(
        "cluster_pod_allocatable_number",
        "Number of allocatable pods in the cluster.",
    ),
    gauge_description(
        "cluster_memory_allocated_bytes",
        "Allocated cluster memory resource in bytes.",
    ),
    gauge_description(
        "cluster_cpu_allocated_number",
        "Number of allocated CPU in the cluster.",
    ),
    gauge_description(
        "cluster_pod_allocated_number",
        "Number of allocated pods in the cluster.",
    ),
];

/// The Clusters of the current leader term, and the token that ends the term.
static REPORTED_CLUSTERS: Mutex<Option<(Informer, ShutdownToken)>> = Mutex::new(None);

static SYNC_DURATIONS: LazyLock<MetricVec<Histogram, 1>> = LazyLock::new(|| {
    flotilla_metrics::process_registry().register_callback(&CLUSTER_GAUGES, |readings| {
        let shown = REPORTED_CLUSTERS.lock().clone();
        if let Some((clusters, ended)) = shown
            && !ended.is_triggered()
        {
            for cluster in clusters.list() {
                if let Ok(view) = cluster.decode::<Cluster>() {
                    report_cluster(cluster.name(), &view, readings);
                }
            }
        }
    });
    flotilla_metrics::process_registry().histograms(
        "cluster_sync_status_duration_seconds",
        "Duration in seconds for syncing the status of the cluster once.",
        &DURATION_BUCKETS,
        MEMBER_LABEL,
    )
});

/// Reports these Clusters until the token is triggered.
pub(super) fn report_clusters(clusters: &Informer, ends: &ShutdownToken) {
    LazyLock::force(&SYNC_DURATIONS);
    *REPORTED_CLUSTERS.lock() = Some((clusters.clone(), ends.clone()));
}

/// Observes the duration of one status sync.
pub(super) fn observe_sync(cluster: &str, took: Duration) {
    SYNC_DURATIONS
        .with_label_values([cluster])
        .observe(took.as_secs_f64());
}

/// Removes the series of a deleted cluster.
pub(super) fn forget_cluster(cluster: &str) {
    SYNC_DURATIONS.remove_label_values([cluster]);
}

fn report_cluster(name: &str, cluster: &Cluster, readings: &mut CallbackMetricWriter<'_>) {
    let mut set = |figure: &str, value: f64| readings.set(figure, &[name], value);
    set(
        "cluster_ready_state",
        f64::from(u8::from(cluster.is_ready())),
    );
    if let Some(nodes) = cluster.status.node_summary {
        set("cluster_node_number", nodes.total_num as f64);
        set("cluster_ready_node_number", nodes.ready_num as f64);
    }
    let Some(summary) = &cluster.status.resource_summary else {
        return;
    };
    for (state, amounts) in [
        ("allocatable", &summary.allocatable),
        ("allocated", &summary.allocated),
    ] {
        for (resource, unit) in [("memory", "bytes"), ("cpu", "number"), ("pods", "number")] {
            let amount = amounts
                .get(resource)
                .map_or(0.0, |q| q.milli_value() as f64 / 1000.0);
            let kind = resource.trim_end_matches('s');
            set(&format!("cluster_{kind}_{state}_{unit}"), amount);
        }
    }
}
