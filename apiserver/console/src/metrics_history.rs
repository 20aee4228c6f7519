//! Samples the metrics of the server, as far as the user may read them, and keeps those of an hour.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use client::{Api, TaskGroup};
use flotilla_cli::doctor::metric_samples::{MetricSample, MetricSamples};
use jiff::Timestamp;
use machinery::time::{Clock, SystemClock};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::clipped_text::clipped;

const METRICS_PATH: &str = "/metrics";
/// The largest scrape that is read.
const MAX_METRICS_BYTES: usize = 32 << 20;
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(30);
/// The samples of an hour.
const MAX_SAMPLES: usize = 121;

const PROCESS_START: &str = "process_start_time_seconds";
const SCHEDULE_ATTEMPTS: &str = "karmada_scheduler_schedule_attempts_total";
const LAG_BUCKET: &str = "flotilla_propagation_lag_seconds_bucket";
const OLDEST_ITEM_AGE: &str = "flotilla_workqueue_oldest_item_age_seconds";
const DRIFT_REPAIRS: &str = "flotilla_drift_repairs_total";
const AGENT_TUNNELS: &str = "flotilla_agent_tunnels";
const CREDENTIAL_EXPIRY: &str = "flotilla_cluster_credential_expiration_timestamp_seconds";
const USED_METRICS: [&str; 7] = [
    PROCESS_START,
    SCHEDULE_ATTEMPTS,
    LAG_BUCKET,
    OLDEST_ITEM_AGE,
    DRIFT_REPAIRS,
    AGENT_TUNNELS,
    CREDENTIAL_EXPIRY,
];
const NO_METRICS: &str =
    "the server has no metrics of Flotilla's controllers; another replica may lead";
/// The stage of the propagation lag that ends when a member has the change.
const APPLIED_STAGE: &str = "applied";

/// The values of one scrape that plots need.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FleetSample {
    pub(crate) at: Timestamp,
    /// When the process began that was asked; another one counts anew.
    pub(crate) process_start: f64,
    pub(crate) schedule_attempts: f64,
    pub(crate) drift_repairs: f64,
    pub(crate) oldest_item_age: f64,
    /// Cumulative counts by upper bound, sorted by the bounds.
    pub(crate) lag_buckets: Vec<(f64, f64)>,
}

/// The connection to a cluster by the last scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ConnectionMetrics {
    /// Open tunnels of its agent; `None` if it is not in pull mode.
    pub(crate) tunnels: Option<u64>,
    /// When the first of its credentials expires, in seconds since 1970.
    pub(crate) expiry: Option<i64>,
}

#[derive(Default)]
struct HistoryState {
    samples: VecDeque<FleetSample>,
    connections: BTreeMap<String, ConnectionMetrics>,
    error: Option<String>,
    /// Scrapes so far.
    count: u64,
}

#[derive(Default)]
pub(crate) struct MetricsHistory(RwLock<HistoryState>);

impl MetricsHistory {
    /// Samples until the tasks are stopped, and counts each sample as a change.
    pub(crate) fn start(
        api: &Arc<dyn Api>,
        tasks: &TaskGroup,
        changes: watch::Sender<u64>,
    ) -> Arc<Self> {
        let history = Arc::new(Self::default());
        let (this, api) = (Arc::clone(&history), Arc::clone(api));
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let sample = async {
                let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
                loop {
                    interval.tick().await;
                    this.sample(&*api, SystemClock.now()).await;
                    changes.send_modify(|count| *count += 1);
                }
            };
            shutdown.run_until_triggered(sample).await;
        });
        history
    }

    async fn sample(&self, api: &dyn Api, now: Timestamp) {
        let scrape = api.get_raw_within(METRICS_PATH, MAX_METRICS_BYTES).await;
        let scrape = scrape.map_err(|error| error.to_string());
        let scrape = scrape.and_then(|body| {
            let samples = MetricSamples::parse(&String::from_utf8_lossy(&body), &USED_METRICS);
            let mut names = [SCHEDULE_ATTEMPTS, OLDEST_ITEM_AGE].into_iter();
            match names.any(|name| samples.of(name).next().is_some()) {
                true => Ok(samples),
                false => Err(NO_METRICS.to_owned()),
            }
        });
        let mut state = self.0.write();
        state.count += 1;
        match scrape {
            Ok(samples) => {
                state.error = None;
                state.connections = connections(&samples);
                state.samples.push_back(fleet_sample(&samples, now));
                if state.samples.len() > MAX_SAMPLES {
                    state.samples.pop_front();
                }
            }
            Err(error) => {
                state.error = Some(clipped(&error));
                // They would go stale.
                state.connections.clear();
            }
        }
    }

    /// The samples of the last hour, the oldest first.
    pub(crate) fn samples(&self) -> Vec<FleetSample> {
        self.0.read().samples.iter().cloned().collect()
    }

    /// Why the last scrape has failed.
    pub(crate) fn error(&self) -> Option<String> {
        self.0.read().error.clone()
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.read().count
    }

    pub(crate) fn connection(&self, cluster: &str) -> ConnectionMetrics {
        let state = self.0.read();
        state.connections.get(cluster).copied().unwrap_or_default()
    }
}

fn connections(samples: &MetricSamples) -> BTreeMap<String, ConnectionMetrics> {
    let mut connections: BTreeMap<String, ConnectionMetrics> = BTreeMap::new();
    let cluster = |sample: &MetricSample| sample.label("member_cluster").to_owned();
    for sample in samples.of(AGENT_TUNNELS) {
        connections.entry(cluster(sample)).or_default().tunnels = Some(sample.value as u64);
    }
    for sample in samples.of(CREDENTIAL_EXPIRY) {
        let connection = connections.entry(cluster(sample)).or_default();
        let expiry = sample.value as i64;
        connection.expiry = Some(connection.expiry.map_or(expiry, |first| first.min(expiry)));
    }
    connections
}

fn fleet_sample(samples: &MetricSamples, at: Timestamp) -> FleetSample {
    let sum = |name: &str| samples.of(name).map(|sample| sample.value).sum();
    let mut lag_buckets: Vec<(f64, f64)> = Vec::new();
    let buckets = samples.of(LAG_BUCKET);
    for sample in buckets.filter(|sample| sample.label("stage") == APPLIED_STAGE) {
        let Ok(bound) = sample.label("le").parse::<f64>() else {
            continue;
        };
        match lag_buckets.iter_mut().find(|(other, _)| *other == bound) {
            Some((_, count)) => *count += sample.value,
            None => lag_buckets.push((bound, sample.value)),
        }
    }
    lag_buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let ages = samples.of(OLDEST_ITEM_AGE).map(|sample| sample.value);
    FleetSample {
        at,
        process_start: samples.value(PROCESS_START).unwrap_or_default(),
        schedule_attempts: sum(SCHEDULE_ATTEMPTS),
        drift_repairs: sum(DRIFT_REPAIRS),
        oldest_item_age: ages.fold(0.0, f64::max),
        lag_buckets,
    }
}

/// A value of a plot; `None` where it is not known.
pub(crate) type PlotPoint = (Timestamp, Option<f64>);

/// The changes of a counter a minute, each between a sample and the one before.
pub(crate) fn rates_per_minute(
    samples: &[FleetSample],
    counter: fn(&FleetSample) -> f64,
) -> Vec<PlotPoint> {
    between(samples, |before, after| {
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let change = counter(after) - counter(before);
        (seconds > 0.0 && change >= 0.0).then(|| change * 60.0 / seconds)
    })
}

/// The bound below which 95 of 100 changes have been applied, each between a sample and the one before;
/// unknown where there were none.
pub(crate) fn lag_quantiles(samples: &[FleetSample]) -> Vec<PlotPoint> {
    const QUANTILE: f64 = 0.95;
    between(samples, |before, after| {
        let count_before = |bound: f64| {
            let mut buckets = before.lag_buckets.iter();
            buckets
                .find(|(other, _)| *other == bound)
                .map_or(0.0, |(_, count)| *count)
        };
        let counts: Vec<(f64, f64)> = after
            .lag_buckets
            .iter()
            .map(|(bound, count)| (*bound, count - count_before(*bound)))
            .collect();
        let (_, all) = *counts.last()?;
        let finite = counts.iter().filter(|(bound, _)| bound.is_finite());
        let largest = finite.clone().next_back()?.0;
        let mut reached = finite.filter(|(_, count)| *count >= QUANTILE * all);
        (all > 0.0).then(|| reached.next().map_or(largest, |(bound, _)| *bound))
    })
}

pub(crate) fn oldest_item_ages(samples: &[FleetSample]) -> Vec<PlotPoint> {
    let points = samples.iter();
    points
        .map(|sample| (sample.at, Some(sample.oldest_item_age)))
        .collect()
}

fn between(
    samples: &[FleetSample],
    value: impl Fn(&FleetSample, &FleetSample) -> Option<f64>,
) -> Vec<PlotPoint> {
    let pairs = samples.windows(2);
    pairs
        .map(|pair| {
            let [before, after] = pair else {
                return (Timestamp::default(), None);
            };
            let is_same_process = before.process_start == after.process_start;
            (
                after.at,
                is_same_process.then(|| value(before, after)).flatten(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::*;

    fn scrape(start: u32, attempts: u32, applied: [u32; 3]) -> String {
        let [fast, slow, all] = applied;
        format!(
            "process_start_time_seconds {start}\n\
             karmada_scheduler_schedule_attempts_total{{result=\"scheduled\"}} {attempts}\n\
             karmada_scheduler_schedule_attempts_total{{result=\"error\"}} 1\n\
             flotilla_workqueue_oldest_item_age_seconds{{name=\"a\"}} 2\n\
             flotilla_workqueue_oldest_item_age_seconds{{name=\"b\"}} 5\n\
             flotilla_propagation_lag_seconds_bucket{{stage=\"applied\",le=\"1\"}} {fast}\n\
             flotilla_propagation_lag_seconds_bucket{{stage=\"applied\",le=\"10\"}} {slow}\n\
             flotilla_propagation_lag_seconds_bucket{{stage=\"applied\",le=\"+Inf\"}} {all}\n\
             flotilla_propagation_lag_seconds_bucket{{stage=\"scheduled\",le=\"+Inf\"}} 99\n\
             flotilla_agent_tunnels{{member_cluster=\"edge\"}} 2\n\
             flotilla_cluster_credential_expiration_timestamp_seconds{{member_cluster=\"east\",credential=\"a\"}} 200\n\
             flotilla_cluster_credential_expiration_timestamp_seconds{{member_cluster=\"east\",credential=\"b\"}} 100\n"
        )
    }

    // proves: CON-plots
    #[tokio::test]
    async fn an_hour_of_samples_is_kept_and_a_restart_is_a_gap() {
        let api = FakeApi::new();
        let history = MetricsHistory::default();
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let scrapes = [
            scrape(1, 10, [0, 0, 0]),
            scrape(1, 20, [94, 100, 100]),
            scrape(1, 20, [94, 100, 101]),
            scrape(2, 3, [0, 0, 0]),
        ];
        for (second, text) in (0..).step_by(30).zip(&scrapes) {
            api.set_raw_body(METRICS_PATH, text.clone());
            history.sample(&*api, at(second)).await;
        }
        let samples = history.samples();
        let rates = rates_per_minute(&samples, |sample| sample.schedule_attempts);
        let expected = [(at(30), Some(20.0)), (at(60), Some(0.0)), (at(90), None)];
        assert_eq!(rates, expected);
        let lags = lag_quantiles(&samples);
        let expected = [(at(30), Some(10.0)), (at(60), Some(10.0)), (at(90), None)];
        assert_eq!(lags, expected);
        assert!(
            oldest_item_ages(&samples)
                .iter()
                .all(|(_, age)| *age == Some(5.0))
        );
        assert_eq!(history.connection("edge").tunnels, Some(2));
        assert_eq!(history.connection("east").expiry, Some(100));
        for second in 0..200 {
            history.sample(&*api, at(100 + second)).await;
        }
        assert_eq!(history.samples().len(), MAX_SAMPLES);
        // A failed scrape takes the connections away, and leaves the samples.
        api.set_raw_body(METRICS_PATH, "unknown 1\n");
        history.sample(&*api, at(400)).await;
        assert!(history.error().is_some());
        assert_eq!(history.connection("edge"), ConnectionMetrics::default());
        assert_eq!(history.samples().len(), MAX_SAMPLES);
    }
}
