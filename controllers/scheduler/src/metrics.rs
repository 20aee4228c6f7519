//! Metrics of scheduling, under Karmada's names (`pkg/scheduler/metrics`).

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use flotilla_metrics::{
    CallbackMetricDesc, CallbackMetricType, Counter, Gauge, Histogram, MetricVec,
    exponential_buckets,
};
use parking_lot::Mutex;

use crate::core::{ExtensionPoint, FilterCounts, SchedulerPluginName, StepOrPluginCompletion};

/// The event that enqueued a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueIncomingEvent {
    Add,
    Update,
    Failure,
    Cluster,
}

/// The schedule type of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleType {
    Reconcile,
    Scale,
}

impl ScheduleType {
    /// `scale`: only the number of replicas is new.
    pub(crate) fn from_scale(scale: bool) -> Self {
        if scale { Self::Scale } else { Self::Reconcile }
    }
}

/// Attempts and their durations, by result and schedule type.
struct SchedulingAttemptMetrics {
    counts: [[Counter; 2]; 2],
    times: [[Histogram; 2]; 2],
}

struct SchedulerMetrics {
    attempts: SchedulingAttemptMetrics,
    steps: [Histogram; 4],
    /// By extension point, then by whether clusters passed.
    extension_points: [[Histogram; 2]; 2],
    /// By plugin and extension point, then by whether clusters passed; `None` at a point where
    /// the plugin does not run.
    plugins: [[Option<[Histogram; 2]>; 2]; SchedulerPluginName::ALL.len()],
    incoming: [Counter; 4],
}

/// Returns the numbers of active, backoff and unschedulable bindings.
type PendingBindingCountsFn = Box<dyn Fn() -> [usize; 3] + Send>;

static PENDING_BINDINGS: Mutex<Option<PendingBindingCountsFn>> = Mutex::new(None);

static METRICS: LazyLock<SchedulerMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    let pending = CallbackMetricDesc::new(
        "scheduler_pending_bindings",
        "Number of pending bindings, by queue.",
        CallbackMetricType::Gauge,
        &["queue"],
    );
    of.register_callback(&[pending], |readings| {
        if let Some(waiting) = &*PENDING_BINDINGS.lock() {
            for (queue, count) in ["active", "backoff", "unschedulable"].iter().zip(waiting()) {
                readings.set("scheduler_pending_bindings", &[queue], count as f64);
            }
        }
    });
    let incoming = of.counters(
        "karmada_scheduler_queue_incoming_bindings_total",
        "Number of bindings added to the scheduling queue, by event.",
        ["event"],
    );
    let steps = of.histograms(
        "karmada_scheduler_scheduling_algorithm_duration_seconds",
        "Duration of the steps of the scheduling algorithm.",
        &exponential_buckets(0.001, 2.0, 15),
        ["schedule_step"],
    );
    let points = of.histograms(
        "karmada_scheduler_framework_extension_point_duration_seconds",
        "Duration of all filter plugins per cluster, and of all score plugins together.",
        &exponential_buckets(0.0001, 2.0, 12),
        ["extension_point", "result"],
    );
    let plugins = of.histograms(
        "karmada_scheduler_plugin_execution_duration_seconds",
        "Mean duration of a plugin per cluster, within one decision.",
        &exponential_buckets(0.00001, 1.5, 20),
        ["plugin", "extension_point", "result"],
    );
    SchedulerMetrics {
        attempts: attempt_metrics(),
        steps: ["Filter", "Score", "Select", "AssignReplicas"]
            .map(|step| steps.with_label_values([step])),
        extension_points: ExtensionPoint::ALL.map(|point| {
            result_labels(point).map(|result| points.with_label_values([point.name(), result]))
        }),
        plugins: SchedulerPluginName::ALL.map(|plugin| {
            ExtensionPoint::ALL.map(|point| plugin_histograms(&plugins, plugin, point))
        }),
        incoming: [
            "BindingAdd",
            "BindingUpdate",
            "ScheduleAttemptFailure",
            "ClusterChanged",
        ]
        .map(|event| incoming.with_label_values([event])),
    }
});

/// The result labels of clusters that pass and of those that do not; scoring rejects none.
fn result_labels(point: ExtensionPoint) -> [&'static str; 2] {
    match point {
        ExtensionPoint::Filter => ["Success", "Unschedulable"],
        ExtensionPoint::Score => ["Success", "Success"],
    }
}

/// The series of a plugin at an extension point, by result.
fn plugin_histograms(
    durations: &MetricVec<Histogram, 3>,
    plugin: SchedulerPluginName,
    point: ExtensionPoint,
) -> Option<[Histogram; 2]> {
    let runs = plugin.extension_points().contains(&point);
    runs.then(|| {
        result_labels(point)
            .map(|result| durations.with_label_values([plugin.name(), point.name(), result]))
    })
}

/// Number of decisions cached for explanations.
pub(crate) static DECISIONS_HELD: LazyLock<Gauge> = LazyLock::new(|| {
    flotilla_metrics::process_registry().gauge(
        "flotilla_scheduler_decisions_held",
        "Last decisions about bindings that are cached for explanations.",
    )
});

/// Number of decisions evicted by newer ones.
pub(crate) static DECISIONS_DROPPED: LazyLock<Counter> = LazyLock::new(|| {
    flotilla_metrics::process_registry().counter(
        "flotilla_scheduler_decisions_dropped_total",
        "Cached decisions that were evicted by newer ones about other bindings.",
    )
});

fn attempt_metrics() -> SchedulingAttemptMetrics {
    let of = flotilla_metrics::process_registry();
    let labels = ["result", "schedule_type"];
    let counts = of.counters(
        "karmada_scheduler_schedule_attempts_total",
        "Number of attempts to schedule bindings.",
        labels,
    );
    let times = of.histograms(
        "karmada_scheduler_e2e_scheduling_duration_seconds",
        "Duration of a scheduling attempt, including its writes.",
        &exponential_buckets(0.001, 2.0, 15),
        labels,
    );
    let kinds = ["ReconcileSchedule", "ScaleSchedule"];
    let results = ["scheduled", "error"];
    SchedulingAttemptMetrics {
        counts: results.map(|result| kinds.map(|kind| counts.with_label_values([result, kind]))),
        times: results.map(|result| kinds.map(|kind| times.with_label_values([result, kind]))),
    }
}

/// Reports the pending bindings of a scheduler's queue from now on.
pub(crate) fn register_queue(waiting: impl Fn() -> [usize; 3] + Send + 'static) {
    LazyLock::force(&METRICS);
    LazyLock::force(&DECISIONS_DROPPED);
    *PENDING_BINDINGS.lock() = Some(Box::new(waiting));
}

pub(crate) fn record_incoming(why: QueueIncomingEvent) {
    METRICS.incoming[why as usize].inc();
}

/// Records a finished attempt.
pub(crate) fn record_attempt(success: bool, kind: ScheduleType, took: Duration) {
    let (result, kind) = (usize::from(!success), kind as usize);
    METRICS.attempts.counts[result][kind].inc();
    METRICS.attempts.times[result][kind].observe(took.as_secs_f64());
}

/// Returns an observer that records the steps and plugins of a decision starting now.
pub(crate) fn step_observer() -> impl FnMut(StepOrPluginCompletion) {
    let metrics = &*METRICS;
    let (mut step_began, mut plugin_began) = (Instant::now(), Instant::now());
    move |ended: StepOrPluginCompletion| {
        let now = Instant::now();
        let plugin_took = (now - std::mem::replace(&mut plugin_began, now)).as_secs_f64();
        let (step, count) = match ended {
            StepOrPluginCompletion::Plugin(plugin, point, count) => {
                if let Some(histograms) = &metrics.plugins[plugin as usize][point as usize] {
                    observe_mean(histograms, count, plugin_took);
                }
                return;
            }
            StepOrPluginCompletion::Step(step, count) => (step, count),
        };
        let took = (now - std::mem::replace(&mut step_began, now)).as_secs_f64();
        metrics.steps[step as usize].observe(took);
        if let Some(point) = metrics.extension_points.get(step as usize) {
            observe_mean(point, count, took);
        }
    }
}

/// Observes the mean duration per cluster, once for the clusters that passed and once for
/// those that did not: one observation per cluster would cost more than most plugins.
fn observe_mean(histograms: &[Histogram; 2], count: FilterCounts, took: f64) {
    let FilterCounts {
        passed,
        rejected: rejected_count,
    } = count;
    for (histogram, some) in histograms.iter().zip([passed > 0, rejected_count > 0]) {
        if some {
            histogram.observe(took / (passed + rejected_count) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The labels of the series that count the durations of a plugin, and those of the series
    /// that are above zero.
    fn series_of(plugin: SchedulerPluginName) -> (BTreeSet<String>, BTreeSet<String>) {
        let text = flotilla_metrics::encode_text(&[flotilla_metrics::process_registry()]);
        let text = String::from_utf8(text).unwrap();
        let of_plugin = format!("plugin=\"{}\"", plugin.name());
        let (mut all, mut observed) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            let name = "karmada_scheduler_plugin_execution_duration_seconds_count{";
            let series = line.strip_prefix(name);
            if let Some((labels, count)) = series.and_then(|series| series.split_once("} "))
                && labels.contains(&of_plugin)
            {
                all.insert(labels.to_owned());
                if count != "0" {
                    observed.insert(labels.to_owned());
                }
            }
        }
        (all, observed)
    }

    // proves: MET-schedule-plugins
    #[test]
    fn series_of_each_plugin_carry_its_extension_points() {
        let mut observe = step_observer();
        for plugin in SchedulerPluginName::ALL {
            let mut expected = BTreeSet::new();
            for point in plugin.extension_points() {
                let count = FilterCounts {
                    passed: 1,
                    rejected: 1,
                };
                observe(StepOrPluginCompletion::Plugin(plugin, *point, count));
                expected.extend(result_labels(*point).map(|result| {
                    let (point, plugin) = (point.name(), plugin.name());
                    format!("extension_point=\"{point}\",plugin=\"{plugin}\",result=\"{result}\"")
                }));
            }
            let name = plugin.name();
            assert_eq!(series_of(plugin), (expected.clone(), expected), "{name}");
        }
    }
}
