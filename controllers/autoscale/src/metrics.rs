//! Defines the metrics of the autoscalers under Karmada's names (`pkg/metrics/resource.go` and
//! `pkg/controllers/federatedhpa/monitor`).

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use flotilla_metrics::{
    Counter, Histogram, MetricVec, MetricsRegistry, ResultHistograms, exponential_buckets,
};
use tokio::time::Instant;

/// The change that a calculation made to the replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScaleAction {
    #[default]
    None,
    ScaleUp,
    ScaleDown,
}

impl ScaleAction {
    pub(crate) fn between(current: i32, desired: i32) -> Self {
        match desired.cmp(&current) {
            std::cmp::Ordering::Equal => Self::None,
            std::cmp::Ordering::Greater => Self::ScaleUp,
            std::cmp::Ordering::Less => Self::ScaleDown,
        }
    }

    fn label(self) -> &'static str {
        ["none", "scale_up", "scale_down"][self as usize]
    }
}

/// Whose fault it is that a calculation failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScaleError {
    #[default]
    None,
    /// The spec cannot be followed.
    Spec,
    /// Something could not be read or written.
    Internal,
}

impl ScaleError {
    fn label(self) -> &'static str {
        ["none", "spec", "internal"][self as usize]
    }
}

/// The sources of metrics, as `type` in the spec names them.
pub(crate) const METRIC_SOURCE_TYPES: [&str; 4] =
    ["Resource", "ContainerResource", "Pods", "Object"];

/// A count and durations by action and error, and by `N - 2` more labels. A series exists from its
/// first use on.
struct ScalingOutcomes<const N: usize> {
    total: MetricVec<Counter, N>,
    duration: MetricVec<Histogram, N>,
}

/// The series of [`ScalingOutcomes`] with the same further labels, by action and error.
#[derive(Default)]
struct OutcomeSeries([[OnceLock<(Counter, Histogram)>; 3]; 3]);

impl<const N: usize> ScalingOutcomes<N> {
    fn new(
        registry: &MetricsRegistry,
        (total, total_help): (&str, &str),
        (duration, duration_help): (&str, &str),
        labels: [&str; N],
    ) -> Self {
        let buckets = exponential_buckets(0.001, 2.0, 15);
        Self {
            total: registry.counters(total, total_help, labels),
            duration: registry.histograms(duration, duration_help, &buckets, labels),
        }
    }

    fn observe(
        &self,
        series: &OutcomeSeries,
        (action, error): (ScaleAction, ScaleError),
        took: Duration,
        labels: [&str; N],
    ) {
        let (total, duration) = series.0[action as usize][error as usize].get_or_init(|| {
            let total = self.total.with_label_values(labels);
            (total, self.duration.with_label_values(labels))
        });
        total.inc();
        duration.observe(took.as_secs_f64());
    }
}

/// The metrics of FederatedHPAs.
pub(crate) struct FederatedHpaMetrics {
    pub(crate) process_outcomes: ResultHistograms,
    /// Reading metrics from all members.
    pub(crate) pull_resource_metric: ResultHistograms,
    pub(crate) pull_raw_metric: ResultHistograms,
    pub(crate) pull_object_metric: ResultHistograms,
    reconciliations: ScalingOutcomes<2>,
    reconciliation_series: OutcomeSeries,
    computations: ScalingOutcomes<3>,
    computation_series: [OutcomeSeries; METRIC_SOURCE_TYPES.len()],
}

pub(crate) static FEDERATED_HPA_METRICS: LazyLock<FederatedHpaMetrics> = LazyLock::new(|| {
    let of = flotilla_metrics::process_registry();
    let buckets = exponential_buckets(0.01, 2.0, 12);
    let pulls = of.histograms(
        "federatedhpa_pull_metrics_duration_seconds",
        "Duration in seconds taken by the FederatedHPA to pull metrics.",
        &buckets,
        ["result", "metricType"],
    );
    let pulls_of = |metric_type| {
        let by_result = |result| pulls.with_label_values([result, metric_type]);
        ResultHistograms::from_series(by_result("success"), by_result("error"))
    };
    FederatedHpaMetrics {
        process_outcomes: ResultHistograms::new(
            of,
            "federatedhpa_process_duration_seconds",
            "Duration in seconds to process a FederatedHPA.",
            &buckets,
        ),
        pull_resource_metric: pulls_of("ResourceMetric"),
        pull_raw_metric: pulls_of("RawMetric"),
        pull_object_metric: pulls_of("ObjectMetric"),
        reconciliations: ScalingOutcomes::new(
            of,
            (
                "horizontal_pod_autoscaler_controller_reconciliations_total",
                "Number of reconciliations of FederatedHPAs.",
            ),
            (
                "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
                "Duration in seconds of a reconciliation of a FederatedHPA.",
            ),
            ["action", "error"],
        ),
        reconciliation_series: OutcomeSeries::default(),
        computations: ScalingOutcomes::new(
            of,
            (
                "horizontal_pod_autoscaler_controller_metric_computation_total",
                "Number of computations of replicas from one metric.",
            ),
            (
                "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
                "Duration in seconds of a computation of replicas from one metric.",
            ),
            ["action", "error", "metric_type"],
        ),
        computation_series: Default::default(),
    }
});

impl FederatedHpaMetrics {
    pub(crate) fn record_reconciliation(
        &self,
        action: ScaleAction,
        error: ScaleError,
        took: Duration,
    ) {
        let labels = [action.label(), error.label()];
        let (all, series) = (&self.reconciliations, &self.reconciliation_series);
        all.observe(series, (action, error), took, labels);
        self.process_outcomes
            .observe(took, error == ScaleError::None);
    }

    /// A source of a type that does not exist has no series.
    pub(crate) fn record_computation(
        &self,
        source_type: &str,
        action: ScaleAction,
        error: ScaleError,
        took: Duration,
    ) {
        let position = METRIC_SOURCE_TYPES.iter().position(|t| *t == source_type);
        let Some(index) = position else { return };
        let labels = [action.label(), error.label(), METRIC_SOURCE_TYPES[index]];
        let (all, series) = (&self.computations, &self.computation_series[index]);
        all.observe(series, (action, error), took, labels);
    }
}

/// Observes how long reading metrics took.
pub(crate) async fn observe_pull<T, E>(
    outcomes: &ResultHistograms,
    pull: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let began = Instant::now();
    let pulled = pull.await;
    outcomes.observe(began.elapsed(), pulled.is_ok());
    pulled
}

/// The metrics of CronFederatedHPAs.
pub(crate) struct CronFederatedHpaMetrics {
    pub(crate) process_outcomes: ResultHistograms,
    pub(crate) rule_outcomes: ResultHistograms,
}

pub(crate) static CRON_FEDERATED_HPA_METRICS: LazyLock<CronFederatedHpaMetrics> =
    LazyLock::new(|| {
        let of = flotilla_metrics::process_registry();
        let buckets = exponential_buckets(0.001, 2.0, 12);
        CronFederatedHpaMetrics {
            process_outcomes: ResultHistograms::new(
                of,
                "cronfederatedhpa_process_duration_seconds",
                "Duration in seconds to process a CronFederatedHPA.",
                &buckets,
            ),
            rule_outcomes: ResultHistograms::new(
                of,
                "cronfederatedhpa_rule_process_duration_seconds",
                "Duration in seconds to process a rule of a CronFederatedHPA.",
                &buckets,
            ),
        }
    });

#[cfg(test)]
mod tests {
    use super::*;

    fn exposed() -> String {
        let all = flotilla_metrics::encode_text(&[flotilla_metrics::process_registry()]);
        String::from_utf8(all).unwrap()
    }

    // proves: MET-autoscalers
    #[tokio::test]
    async fn names_and_labels_are_those_of_karmada() {
        let (metrics, took) = (&*FEDERATED_HPA_METRICS, Duration::from_millis(20));
        let action = ScaleAction::between(3, 2);
        metrics.record_reconciliation(action, ScaleError::Internal, took);
        let action = ScaleAction::between(3, 4);
        metrics.record_computation("ContainerResource", action, ScaleError::None, took);
        metrics.record_computation("CheddarCheese", action, ScaleError::Spec, took);
        let pull = observe_pull(&metrics.pull_object_metric, async { Err::<(), ()>(()) });
        assert!(pull.await.is_err());
        CRON_FEDERATED_HPA_METRICS.rule_outcomes.observe(took, true);
        let text = exposed();
        let total = "horizontal_pod_autoscaler_controller_metric_computation_total";
        for series in [
            "horizontal_pod_autoscaler_controller_reconciliations_total{action=\"scale_down\",error=\"internal\"}",
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_count{action=\"scale_down\",error=\"internal\"}",
            &format!(
                "{total}{{action=\"scale_up\",error=\"none\",metric_type=\"ContainerResource\"}}"
            ),
            "federatedhpa_process_duration_seconds_count{result=\"error\"}",
            "federatedhpa_pull_metrics_duration_seconds_count{metricType=\"ObjectMetric\",result=\"error\"}",
            "cronfederatedhpa_rule_process_duration_seconds_count{result=\"success\"}",
            "cronfederatedhpa_process_duration_seconds_count{result=\"error\"}",
        ] {
            assert!(text.contains(series), "{series} is not in {text}");
        }
        assert!(!text.contains("CheddarCheese"));
    }
}
