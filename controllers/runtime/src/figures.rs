//! Metrics of queues and workers under the names of client-go
//! (`util/workqueue/metrics.go`) and controller-runtime, and the propagation lag of each
//! stage.
//!
//! The metric handles of a controller are resolved when its workers start.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::time::Duration;

use flotilla_metrics::{Counter, Family, Figure, Gauge, Histogram, Shape, exponential};
use parking_lot::Mutex;

const NAME: [&str; 1] = ["name"];
const CONTROLLER: [&str; 1] = ["controller"];
/// Histogram buckets in seconds, from imperceptible to unbearable latencies.
const LAGS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0,
];

/// The name of a controller in logs and metrics, and the stage of propagation that it
/// implements, if any.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub(crate) controller: &'static str,
    stage: Option<&'static str>,
}

impl Name {
    /// `stage` names the result of this propagation stage: `binding`, `scheduled`, `work`,
    /// `applied`, `reflected`, `aggregated`.
    pub fn stage(controller: &'static str, stage: &'static str) -> Self {
        Self {
            controller,
            stage: Some(stage),
        }
    }
}

impl From<&'static str> for Name {
    fn from(controller: &'static str) -> Self {
        Self {
            controller,
            stage: None,
        }
    }
}

struct Families {
    depth: Family<Gauge, 1>,
    adds: Family<Counter, 1>,
    waited: Family<Histogram, 1>,
    worked: Family<Histogram, 1>,
    retries: Family<Counter, 1>,
    reconciled: Family<Counter, 2>,
    times: Family<Histogram, 1>,
    active: Family<Gauge, 1>,
    workers: Family<Gauge, 1>,
    lags: Family<Histogram, 1>,
}

static FAMILIES: LazyLock<Families> = LazyLock::new(|| {
    let of = flotilla_metrics::process();
    let tens = exponential(1e-8, 10.0, 12);
    Families {
        depth: of.gauges("workqueue_depth", "Keys that wait for a worker.", NAME),
        adds: of.counters("workqueue_adds_total", "Keys that began to wait.", NAME),
        waited: of.histograms(
            "workqueue_queue_duration_seconds",
            "Time that a key waited for a worker.",
            &tens,
            NAME,
        ),
        worked: of.histograms(
            "workqueue_work_duration_seconds",
            "Time that a worker had a key.",
            &tens,
            NAME,
        ),
        retries: of.counters(
            "workqueue_retries_total",
            "Keys that came back after a failure.",
            NAME,
        ),
        reconciled: of.counters(
            "controller_runtime_reconcile_total",
            "Reconciliations by result.",
            ["controller", "result"],
        ),
        times: of.histograms(
            "controller_runtime_reconcile_time_seconds",
            "Time of reconciliations.",
            &LAGS,
            CONTROLLER,
        ),
        active: of.gauges(
            "controller_runtime_active_workers",
            "Workers that have a key.",
            CONTROLLER,
        ),
        workers: of.gauges(
            "controller_runtime_max_concurrent_reconciles",
            "Workers there are.",
            CONTROLLER,
        ),
        lags: of.histograms(
            "flotilla_propagation_lag_seconds",
            "Time from a change until the step that answers to it has succeeded, retries included.",
            &LAGS,
            ["stage"],
        ),
    }
});

static LEADS: LazyLock<Family<Gauge, 1>> = LazyLock::new(|| {
    flotilla_metrics::process().gauges(
        "leader_election_master_status",
        "Whether this process holds the lease.",
        NAME,
    )
});

/// Registers this process as a candidate for a lease.
pub(crate) fn competes(lease: &str) {
    LEADS.with([lease]).set(0);
}

/// Marks this process as the holder of a lease until the guard is dropped.
pub(crate) fn leads(lease: &str) -> Counted {
    Counted::new(&LEADS.with([lease]))
}

/// Counts of dropped events, one per recorder.
static DROPPED: Mutex<Vec<Arc<AtomicU64>>> = Mutex::new(Vec::new());

/// Adds the dropped events of a recorder to the process-wide metric.
pub(crate) fn dropped_events(count: &Arc<AtomicU64>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let sum = Figure::new(
            "flotilla_events_dropped_total",
            "Events (the kind) that were recorded too fast or could not be written.",
            Shape::Counter,
            &[],
        );
        flotilla_metrics::process().read(&[sum], |readings| {
            let all = DROPPED.lock();
            let sum: u64 = all.iter().map(|c| c.load(Ordering::Relaxed)).sum();
            readings.set("flotilla_events_dropped_total", &[], sum as f64);
        });
    });
    DROPPED.lock().push(Arc::clone(count));
}

/// Increments a gauge while it lives.
pub(crate) struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metric handles of one queue.
pub(crate) struct OfQueue {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) waited: Histogram,
    pub(crate) retries: Counter,
}

impl OfQueue {
    pub(crate) fn new(name: Name) -> Self {
        let labels = [name.controller];
        Self {
            depth: FAMILIES.depth.with(labels),
            adds: FAMILIES.adds.with(labels),
            waited: FAMILIES.waited.with(labels),
            retries: FAMILIES.retries.with(labels),
        }
    }
}

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Success,
    Later,
    Error,
}

/// Metric handles of the workers of one controller.
pub(crate) struct OfWorkers {
    worked: Histogram,
    time: Histogram,
    results: [Counter; 3],
    active: Gauge,
    workers: Gauge,
    lag: Option<Histogram>,
}

impl OfWorkers {
    pub(crate) fn new(name: Name) -> Arc<Self> {
        let labels = [name.controller];
        Arc::new(Self {
            worked: FAMILIES.worked.with(labels),
            time: FAMILIES.times.with(labels),
            results: ["success", "requeue_after", "error"]
                .map(|result| FAMILIES.reconciled.with([name.controller, result])),
            active: FAMILIES.active.with(labels),
            workers: FAMILIES.workers.with(labels),
            lag: name.stage.map(|stage| FAMILIES.lags.with([stage])),
        })
    }

    /// Counts a worker until the guard is dropped.
    pub(crate) fn worker(&self) -> Counted {
        Counted::new(&self.workers)
    }

    /// Counts a worker that is processing a key until the guard is dropped.
    pub(crate) fn busy(&self) -> Counted {
        Counted::new(&self.active)
    }

    /// Whether this controller is a stage of propagation, whose lag is measured.
    pub(crate) fn is_stage(&self) -> bool {
        self.lag.is_some()
    }

    /// Records a finished reconciliation. `lag`: time since the user change that it handled.
    pub(crate) fn ended(&self, took: Duration, how: Ended, lag: Option<Duration>) {
        let seconds = took.as_secs_f64();
        self.worked.observe(seconds);
        self.time.observe(seconds);
        self.results[how as usize].inc();
        if let (Some(histogram), Some(lag)) = (&self.lag, lag) {
            histogram.observe(lag.as_secs_f64());
        }
    }
}
