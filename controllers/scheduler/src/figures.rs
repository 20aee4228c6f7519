//! Metrics of scheduling, under Karmada's names (`pkg/scheduler/metrics`).

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use flotilla_metrics::{Counter, Figure, Gauge, Histogram, Shape, exponential};
use parking_lot::Mutex;

use crate::core::{self, Count, Decision, Ended, Plugin, Request, Snapshot, World};

/// The event that enqueued a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    Add,
    Update,
    Failure,
    Cluster,
}

/// The schedule type of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reconcile,
    Scale,
}

impl Kind {
    /// `scale`: only the number of replicas is new.
    pub(crate) fn of(scale: bool) -> Self {
        if scale { Self::Scale } else { Self::Reconcile }
    }
}

/// Attempts and their durations, by result and schedule type.
struct Attempts {
    counts: [[Counter; 2]; 2],
    times: [[Histogram; 2]; 2],
}

struct Figures {
    attempts: Attempts,
    steps: [Histogram; 4],
    /// By extension point, then by whether clusters passed.
    points: [[Histogram; 2]; 2],
    plugins: [[Histogram; 2]; Plugin::ALL.len()],
    incoming: [Counter; 4],
}

/// Returns the numbers of active, backoff and unschedulable bindings.
type Waiting = Box<dyn Fn() -> [usize; 3] + Send>;

static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);

static FIGURES: LazyLock<Figures> = LazyLock::new(|| {
    let of = flotilla_metrics::process();
    let pending = Figure::new(
        "scheduler_pending_bindings",
        "Number of pending bindings, by queue.",
        Shape::Gauge,
        &["queue"],
    );
    of.read(&[pending], |readings| {
        if let Some(waiting) = &*WAITING.lock() {
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
        &exponential(0.001, 2.0, 15),
        ["schedule_step"],
    );
    let points = of.histograms(
        "karmada_scheduler_framework_extension_point_duration_seconds",
        "Duration of all filter plugins per cluster, and of all score plugins together.",
        &exponential(0.0001, 2.0, 12),
        ["extension_point", "result"],
    );
    let plugins = of.histograms(
        "karmada_scheduler_plugin_execution_duration_seconds",
        "Mean duration of a plugin per cluster, within one decision.",
        &exponential(0.00001, 1.5, 20),
        ["plugin", "extension_point", "result"],
    );
    Figures {
        attempts: attempts(),
        steps: ["Filter", "Score", "Select", "AssignReplicas"].map(|step| steps.with([step])),
        points: ["Filter", "Score"]
            .map(|point| results(point).map(|result| points.with([point, result]))),
        plugins: Plugin::ALL.map(|plugin| {
            let point = match plugin {
                Plugin::ClusterLocality => "Score",
                _ => "Filter",
            };
            results(point).map(|result| plugins.with([plugin.name(), point, result]))
        }),
        incoming: [
            "BindingAdd",
            "BindingUpdate",
            "ScheduleAttemptFailure",
            "ClusterChanged",
        ]
        .map(|event| incoming.with([event])),
    }
});

/// The result labels of clusters that pass and of those that do not; scoring rejects none.
fn results(point: &str) -> [&'static str; 2] {
    match point {
        "Filter" => ["Success", "Unschedulable"],
        _ => ["Success", "Success"],
    }
}

/// Number of decisions cached for explanations.
pub(crate) static HELD: LazyLock<Gauge> = LazyLock::new(|| {
    flotilla_metrics::process().gauge(
        "flotilla_scheduler_decisions_held",
        "Last decisions about bindings that are cached for explanations.",
    )
});

/// Number of decisions evicted by newer ones.
pub(crate) static DROPPED: LazyLock<Counter> = LazyLock::new(|| {
    flotilla_metrics::process().counter(
        "flotilla_scheduler_decisions_dropped_total",
        "Cached decisions that were evicted by newer ones about other bindings.",
    )
});

fn attempts() -> Attempts {
    let of = flotilla_metrics::process();
    let labels = ["result", "schedule_type"];
    let counts = of.counters(
        "karmada_scheduler_schedule_attempts_total",
        "Number of attempts to schedule bindings.",
        labels,
    );
    let times = of.histograms(
        "karmada_scheduler_e2e_scheduling_duration_seconds",
        "Duration of a scheduling attempt, including its writes.",
        &exponential(0.001, 2.0, 15),
        labels,
    );
    let kinds = ["ReconcileSchedule", "ScaleSchedule"];
    let results = ["scheduled", "error"];
    Attempts {
        counts: results.map(|result| kinds.map(|kind| counts.with([result, kind]))),
        times: results.map(|result| kinds.map(|kind| times.with([result, kind]))),
    }
}

/// Reports the pending bindings of a scheduler's queue from now on.
pub(crate) fn show(waiting: impl Fn() -> [usize; 3] + Send + 'static) {
    LazyLock::force(&FIGURES);
    LazyLock::force(&DROPPED);
    *WAITING.lock() = Some(Box::new(waiting));
}

pub(crate) fn came(why: Incoming) {
    FIGURES.incoming[why as usize].inc();
}

/// Records a finished attempt.
pub(crate) fn attempted(success: bool, kind: Kind, took: Duration) {
    let (result, kind) = (usize::from(!success), kind as usize);
    FIGURES.attempts.counts[result][kind].inc();
    FIGURES.attempts.times[result][kind].observe(took.as_secs_f64());
}

/// Returns an observer that records the steps and plugins of a decision starting now.
pub(crate) fn steps() -> impl FnMut(Ended) {
    let figures = &*FIGURES;
    let (mut step_began, mut plugin_began) = (Instant::now(), Instant::now());
    move |ended: Ended| {
        let now = Instant::now();
        let plugin_took = (now - std::mem::replace(&mut plugin_began, now)).as_secs_f64();
        let (step, count) = match ended {
            Ended::Plugin(plugin, count) => {
                each(&figures.plugins[plugin as usize], count, plugin_took);
                return;
            }
            Ended::Step(step, count) => (step, count),
        };
        let took = (now - std::mem::replace(&mut step_began, now)).as_secs_f64();
        figures.steps[step as usize].observe(took);
        if let Some(point) = figures.points.get(step as usize) {
            each(point, count, took);
        }
    }
}

/// Observes the mean duration per cluster, once for the clusters that passed and once for
/// those that did not: one observation per cluster would cost more than most plugins.
fn each(figures: &[Histogram; 2], count: Count, took: f64) {
    let Count { passed, refused } = count;
    for (figure, some) in figures.iter().zip([passed > 0, refused > 0]) {
        if some {
            figure.observe(took / (passed + refused) as f64);
        }
    }
}

/// The decision cannot be made inline; the scheduler decides or reports the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the decision is left to the scheduler")]
pub struct LeftToScheduler;

/// [`core::make_decision`] for a caller that writes the result together with its own change;
/// counted as one attempt. `scaled`: only the number of replicas has changed.
pub fn schedule_ahead<'a>(
    request: &Request<'a>,
    snapshot: &'a Snapshot,
    scaled: bool,
) -> Result<Decision<'a>, LeftToScheduler> {
    // Only the scheduler knows the latest results of other bindings and asks estimators.
    let rules = snapshot.rules();
    let grouped = request.spec.workload_affinity_groups.is_some();
    let asks = rules.estimators && core::is_estimated(request.spec);
    if asks || (rules.reserve && request.spec.is_workload()) || (rules.looks_at_peers() && grouped)
    {
        return Err(LeftToScheduler);
    }
    let began = Instant::now();
    let decision = core::decide(request, &World::of(snapshot), &mut steps());
    // The scheduler repeats a failed decision, and counts it.
    if decision.failure().is_some() {
        return Err(LeftToScheduler);
    }
    attempted(true, Kind::of(scaled), began.elapsed());
    Ok(decision)
}

#[cfg(test)]
mod tests {
    use openapi::karmada::{FeatureGates, Gate};

    use super::*;
    use crate::core::tests::cluster;
    use crate::core::tests::table::{asked, placement};
    use crate::core::{Plugins, Rules};

    #[test]
    fn decisions_that_depend_on_other_bindings_are_deferred_to_the_scheduler() {
        let mut grouped = asked("n:2").binding.spec;
        grouped.workload_affinity_groups = Some(Default::default());
        let single = asked("n:2").binding.spec;
        let placement = placement("");
        let under = |spec, gate, asking| {
            let gates = FeatureGates::default().with(gate, true);
            let rules = Rules::new(gates, Plugins::default(), false).asking(asking);
            let member = cluster("a", 10, serde_json::json!({}));
            let request = Request {
                spec,
                placement: &placement,
                term: None,
                fresh: false,
            };
            schedule_ahead(&request, &Snapshot::new([member]).under(rules), false).is_ok()
        };
        let ahead = |spec, gate| under(spec, gate, false);
        assert!(ahead(&grouped, Gate::PriorityBasedScheduling));
        assert!(!ahead(&grouped, Gate::WorkloadAffinity));
        assert!(ahead(&single, Gate::WorkloadAffinity));
        assert!(!ahead(&single, Gate::SchedulingOvercommitProtection));
        let nothing = asked("").binding.spec;
        let asking = |spec| under(spec, Gate::PriorityBasedScheduling, true);
        assert!(!asking(&single) && asking(&nothing));
    }
}
