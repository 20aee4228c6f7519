//! Metrics of queues and workers under the names of client-go
//! (`util/workqueue/metrics.go`) and controller-runtime, and the propagation lag of each
//! stage.
//!
//! The metric handles of a controller are resolved when its workers start.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::time::Duration;

use flotilla_metrics::{
    CallbackMetricDesc, CallbackMetricType, Counter, Gauge, Histogram, MetricVec,
    exponential_buckets,
};
use parking_lot::Mutex;
use tokio::time::Instant;

const NAME_LABEL: [&str; 1] = ["name"];
const CONTROLLER_LABEL: [&str; 1] = ["controller"];
/// Histogram buckets in seconds, from imperceptible to unbearable latencies.
const LATENCY_BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0,
];

/// The name of a controller in logs and metrics, and the stage of propagation that it
/// implements, if any.
#[derive(Clone, Copy, Debug)]
pub struct ControllerName {
    pub(crate) controller: &'static str,
    stage: Option<&'static str>,
}

impl ControllerName {
    /// `stage` names the result of this propagation stage: `binding`, `scheduled`, `work`,
    /// `applied`, `reflected`, `aggregated`; for endpoints `endpoints_collected`, `endpoints_imported`
    /// and `endpoints_dispatched`.
    pub fn with_stage(controller: &'static str, stage: &'static str) -> Self {
        Self {
            controller,
            stage: Some(stage),
        }
    }
}

impl From<&'static str> for ControllerName {
    fn from(controller: &'static str) -> Self {
        Self {
            controller,
            stage: None,
        }
    }
}

struct ControllerMetricFamilies {
    depth: MetricVec<Gauge, 1>,
    adds: MetricVec<Counter, 1>,
    queue_duration: MetricVec<Histogram, 1>,
    work_duration: MetricVec<Histogram, 1>,
    retries: MetricVec<Counter, 1>,
    reconciles: MetricVec<Counter, 2>,
    reconcile_times: MetricVec<Histogram, 1>,
    active: MetricVec<Gauge, 1>,
    workers: MetricVec<Gauge, 1>,
    propagation_lags: MetricVec<Histogram, 1>,
}

static FAMILIES: LazyLock<ControllerMetricFamilies> =
    LazyLock::new(|| {
        let of = flotilla_metrics::process_registry();
        let tens = exponential_buckets(1e-8, 10.0, 12);
        ControllerMetricFamilies {
        depth: of.gauges("workqueue_depth", "Keys that wait for a worker.", NAME_LABEL),
        adds: of.counters("workqueue_adds_total", "Keys that began to wait.", NAME_LABEL),
        queue_duration: of.histograms(
            "workqueue_queue_duration_seconds",
            "Time that a key waited for a worker.",
            &tens,
            NAME_LABEL,
        ),
        work_duration: of.histograms(
            "workqueue_work_duration_seconds",
            "Time that a worker had a key.",
            &tens,
            NAME_LABEL,
        ),
        retries: of.counters(
            "workqueue_retries_total",
            "Keys that came back after a failure.",
            NAME_LABEL,
        ),
        reconciles: of.counters(
            "controller_runtime_reconcile_total",
            "Reconciliations by result.",
            ["controller", "result"],
        ),
        reconcile_times: of.histograms(
            "controller_runtime_reconcile_time_seconds",
            "Time of reconciliations.",
            &LATENCY_BUCKETS,
            CONTROLLER_LABEL,
        ),
        active: of.gauges(
            "controller_runtime_active_workers",
            "Workers that have a key.",
            CONTROLLER_LABEL,
        ),
        workers: of.gauges(
            "controller_runtime_max_concurrent_reconciles",
            "Workers there are.",
            CONTROLLER_LABEL,
        ),
        propagation_lags: of.histograms(
            "flotilla_propagation_lag_seconds",
            "Time from a change until the step that answers to it has succeeded, retries included.",
            &LATENCY_BUCKETS,
            ["stage"],
        ),
    }
    });

static LEADER_STATUS: LazyLock<MetricVec<Gauge, 1>> = LazyLock::new(|| {
    flotilla_metrics::process_registry().gauges(
        "leader_election_master_status",
        "Whether this process holds the lease.",
        NAME_LABEL,
    )
});

/// Registers this process as a candidate for a lease.
pub(crate) fn record_candidate(lease: &str) {
    LEADER_STATUS.with_label_values([lease]).set(0);
}

/// Marks this process as the holder of a lease until the guard is dropped.
pub(crate) fn record_leader(lease: &str) -> GaugeIncrement {
    GaugeIncrement::new(&LEADER_STATUS.with_label_values([lease]))
}

/// Counts of dropped events, one per recorder.
static DROPPED_EVENT_COUNTS: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

/// Adds the dropped events of a recorder to the process-wide metric.
pub(crate) fn register_dropped_events(count: &Arc<AtomicU64>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let sum = CallbackMetricDesc::new(
            "flotilla_events_dropped_total",
            "Events (the kind) that were recorded too fast or could not be written.",
            CallbackMetricType::Counter,
            &[],
        );
        flotilla_metrics::process_registry().register_callback(&[sum], |readings| {
            let all = DROPPED_EVENT_COUNTS.lock();
            let sum: u64 = all.iter().map(|c| c.load(Ordering::Relaxed)).sum();
            readings.set("flotilla_events_dropped_total", &[], sum as f64);
        });
    });
    DROPPED_EVENT_COUNTS.lock().push(Arc::clone(count));
}

/// A queue whose oldest waiting key is reported.
pub(crate) trait MeasuredQueue: Send {
    /// Whether the queue still reports metrics.
    fn is_measured(&self) -> bool;
    /// Since when the key that waits longest has waited; `None` if none waits.
    fn oldest_wait(&self) -> Option<Instant>;
}

static MEASURED_QUEUES: Mutex<Vec<(&'static str, Box<dyn MeasuredQueue>)>> = Mutex::new(Vec::new());

/// Reports the age of the oldest waiting key of a queue until the queue ends.
pub(crate) fn register_queue_age(name: ControllerName, queue: impl MeasuredQueue + 'static) {
    const AGE: &str = "flotilla_workqueue_oldest_item_age_seconds";
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let age = CallbackMetricDesc::new(
            AGE,
            "How long the key that waits longest has waited for a worker; 0 if none waits.",
            CallbackMetricType::Gauge,
            &NAME_LABEL,
        );
        flotilla_metrics::process_registry().register_callback(&[age], |readings| {
            for (name, seconds) in queue_ages(Instant::now()) {
                readings.set(AGE, &[name], seconds);
            }
        });
    });
    let mut queues = MEASURED_QUEUES.lock();
    queues.retain(|(_, queue)| queue.is_measured());
    queues.push((name.controller, Box::new(queue)));
}

/// The age of the oldest waiting key by the name of the queue, in seconds. Several queues may
/// have one name.
fn queue_ages(now: Instant) -> BTreeMap<&'static str, f64> {
    let mut ages = BTreeMap::new();
    let mut queues = MEASURED_QUEUES.lock();
    queues.retain(|(_, queue)| queue.is_measured());
    for (name, queue) in &*queues {
        let since = queue.oldest_wait();
        let age = since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        let oldest: &mut f64 = ages.entry(*name).or_default();
        *oldest = oldest.max(age);
    }
    ages
}

/// Increments a gauge while it lives.
pub(crate) struct GaugeIncrement(Gauge);

impl GaugeIncrement {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeIncrement {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metric handles of one queue.
pub(crate) struct WorkqueueMetrics {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) queue_duration: Histogram,
    pub(crate) retries: Counter,
}

impl WorkqueueMetrics {
    pub(crate) fn new(name: ControllerName) -> Self {
        let labels = [name.controller];
        Self {
            depth: FAMILIES.depth.with_label_values(labels),
            adds: FAMILIES.adds.with_label_values(labels),
            queue_duration: FAMILIES.queue_duration.with_label_values(labels),
            retries: FAMILIES.retries.with_label_values(labels),
        }
    }
}

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileOutcome {
    Success,
    RequeueAfter,
    Error,
}

/// Metric handles of the workers of one controller.
pub(crate) struct WorkerMetrics {
    work_duration: Histogram,
    reconcile_time: Histogram,
    results: [Counter; 3],
    active: Gauge,
    workers: Gauge,
    lag: Option<Histogram>,
}

impl WorkerMetrics {
    pub(crate) fn new(name: ControllerName) -> Arc<Self> {
        let labels = [name.controller];
        Arc::new(Self {
            work_duration: FAMILIES.work_duration.with_label_values(labels),
            reconcile_time: FAMILIES.reconcile_times.with_label_values(labels),
            results: ["success", "requeue_after", "error"].map(|result| {
                FAMILIES
                    .reconciles
                    .with_label_values([name.controller, result])
            }),
            active: FAMILIES.active.with_label_values(labels),
            workers: FAMILIES.workers.with_label_values(labels),
            lag: name
                .stage
                .map(|stage| FAMILIES.propagation_lags.with_label_values([stage])),
        })
    }

    /// Counts a worker until the guard is dropped.
    pub(crate) fn track_worker(&self) -> GaugeIncrement {
        GaugeIncrement::new(&self.workers)
    }

    /// Counts a worker that is processing a key until the guard is dropped.
    pub(crate) fn track_active(&self) -> GaugeIncrement {
        GaugeIncrement::new(&self.active)
    }

    /// Whether this controller is a stage of propagation, whose lag is measured.
    pub(crate) fn is_stage(&self) -> bool {
        self.lag.is_some()
    }

    /// Records a finished reconciliation. `lag`: time since the user change that it handled.
    pub(crate) fn record_reconcile(
        &self,
        took: Duration,
        how: ReconcileOutcome,
        lag: Option<Duration>,
    ) {
        let seconds = took.as_secs_f64();
        self.work_duration.observe(seconds);
        self.reconcile_time.observe(seconds);
        self.results[how as usize].inc();
        if let (Some(histogram), Some(lag)) = (&self.lag, lag) {
            histogram.observe(lag.as_secs_f64());
        }
    }
}
