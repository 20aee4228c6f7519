//! Computes how many replicas a scale target needs for its metrics to meet their target.
//!
//! The algorithm is that of Kubernetes' `pkg/controller/podautoscaler/replica_calculator.go` with
//! Karmada's calibration: replicas are those of the template, and each of them may stand for several
//! pods in the members. Unlike Karmada, which divides an average of an object by the calibration
//! twice, every result is divided once.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::pod_groups::{
    PodGroups, PodKey, PodMetric, PodMetrics, PodStartPeriods, ScaledPod, group_pods,
    requests_of_pods,
};

/// The scale target at the time of a calculation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CalculatorInput<'a> {
    /// Replicas of the template.
    pub(crate) current_replicas: i32,
    /// Replicas that the members report.
    pub(crate) status_replicas: i32,
    /// Replicas that the members should have, by replica of the template.
    pub(crate) calibration: f64,
    pub(crate) pods: &'a [ScaledPod],
    /// Ratios of usage and target this near to 1 change nothing.
    pub(crate) tolerance: f64,
    pub(crate) periods: PodStartPeriods,
    pub(crate) now: Timestamp,
}

/// The proposed replicas and the usage from which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaProposal {
    pub(crate) replicas: i32,
    /// Mean of the pods, or the value of an object, in thousandths.
    pub(crate) usage: i64,
    /// Usage in percent of the requests, where the target is a utilization.
    pub(crate) utilization: Option<i32>,
}

/// The target usage of each pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PodTarget<'a> {
    /// Percent of what the pod requests of a resource, in all containers if `container` is empty.
    Utilization {
        percent: i32,
        resource: &'a str,
        container: &'a str,
    },
    /// Mean over the pods, in thousandths; `resource` is empty for metrics that are none.
    Average { milli: i64, resource: &'a str },
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for any ready pods";

impl CalculatorInput<'_> {
    /// Replicas by a metric of the pods.
    pub(crate) fn by_pods(
        &self,
        target: PodTarget<'_>,
        mut metrics: PodMetrics,
    ) -> Result<ReplicaProposal, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.into());
        }
        let measure = UsageMeasure::new(target, self.pods)?;
        let is_cpu = target.resource() == "cpu";
        let groups = group_pods(self.pods, &metrics, is_cpu, self.periods, self.now);
        for key in groups.ignored.iter().chain(&groups.unready) {
            metrics.remove(key);
        }
        if metrics.is_empty() {
            return Err(NO_METRICS.into());
        }
        let usage = measure.usage(&metrics)?;
        let replicas = self.replicas_for_pods(&measure, usage.ratio, groups, metrics)?;
        Ok(ReplicaProposal {
            replicas,
            usage: usage.average,
            utilization: usage.utilization,
        })
    }

    /// Pods without metrics and unready pods count such that they dampen the change.
    fn replicas_for_pods(
        &self,
        measure: &UsageMeasure,
        ratio: f64,
        groups: PodGroups,
        mut metrics: PodMetrics,
    ) -> Result<i32, String> {
        let scale_up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !scale_up_with_unready && groups.missing.is_empty() {
            return Ok(match self.is_within_tolerance(ratio) {
                true => self.current_replicas,
                false => self.calibrated(ratio * groups.ready as f64),
            });
        }
        let mut assume = |key: PodKey, value: i64| {
            let metric = PodMetric {
                value,
                timestamp: self.now,
                window: SignedDuration::ZERO,
            };
            metrics.insert(key, metric);
        };
        for key in groups.missing {
            if ratio < 1.0 {
                let value = measure.full_usage(&key);
                assume(key, value);
            } else if ratio > 1.0 {
                assume(key, 0);
            }
        }
        if scale_up_with_unready {
            for key in groups.unready {
                assume(key, 0);
            }
        }
        let assumed = measure.usage(&metrics)?.ratio;
        let turned = |ratio: f64, other: f64| ratio < 1.0 && other > 1.0;
        if self.is_within_tolerance(assumed) || turned(ratio, assumed) || turned(assumed, ratio) {
            return Ok(self.current_replicas);
        }
        let replicas = self.calibrated(assumed * metrics.len() as f64);
        let opposite = (assumed < 1.0 && replicas > self.current_replicas)
            || (assumed > 1.0 && replicas < self.current_replicas);
        Ok(if opposite {
            self.current_replicas
        } else {
            replicas
        })
    }

    /// Replicas by a metric of one object, whose value should be `target`, both in thousandths.
    pub(crate) fn by_object_value(
        &self,
        target: i64,
        value: i64,
    ) -> Result<ReplicaProposal, String> {
        let ratio = value as f64 / target as f64;
        let replicas = if self.current_replicas == 0 {
            replicas_from(ratio)
        } else if self.is_within_tolerance(ratio) {
            self.current_replicas
        } else if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        } else {
            let ready = self.pods.iter().filter(|pod| pod.is_ready()).count();
            self.calibrated(ratio * ready as f64)
        };
        Ok(ReplicaProposal {
            replicas,
            usage: value,
            utilization: None,
        })
    }

    /// Replicas by a metric of one object, whose value by pod should be `target`, both in
    /// thousandths.
    pub(crate) fn by_object_average(&self, target: i64, value: i64) -> ReplicaProposal {
        let pods = f64::from(self.status_replicas);
        let ratio = value as f64 / (target as f64 * pods);
        let needed = match self.is_within_tolerance(ratio) {
            true => pods,
            false => (value as f64 / target as f64).ceil(),
        };
        ReplicaProposal {
            replicas: self.calibrated(needed),
            usage: (value as f64 / pods).ceil() as i64,
            utilization: None,
        }
    }

    fn is_within_tolerance(&self, ratio: f64) -> bool {
        (1.0 - ratio).abs() <= self.tolerance
    }

    /// The replicas of the template for a number of pods.
    fn calibrated(&self, pods: f64) -> i32 {
        replicas_from(pods / self.calibration)
    }
}

/// Rounds up; what does not fit is the largest number.
fn replicas_from(number: f64) -> i32 {
    number.ceil() as i32
}

impl<'a> PodTarget<'a> {
    fn resource(self) -> &'a str {
        match self {
            Self::Utilization { resource, .. } | Self::Average { resource, .. } => resource,
        }
    }
}

/// Relates the metrics of pods to their target.
enum UsageMeasure {
    Utilization {
        percent: i32,
        requests: BTreeMap<PodKey, i64>,
    },
    Average {
        milli: i64,
    },
}

struct Usage {
    /// Usage divided by the target.
    ratio: f64,
    /// Mean of the pods, in thousandths.
    average: i64,
    utilization: Option<i32>,
}

impl UsageMeasure {
    fn new(target: PodTarget<'_>, pods: &[ScaledPod]) -> Result<Self, String> {
        Ok(match target {
            PodTarget::Utilization {
                percent,
                resource,
                container,
            } => Self::Utilization {
                percent,
                requests: requests_of_pods(pods, container, resource)?,
            },
            PodTarget::Average { milli, .. } => Self::Average { milli },
        })
    }

    /// The usage of pods that have metrics. An error if none of them requests anything.
    fn usage(&self, metrics: &PodMetrics) -> Result<Usage, String> {
        match self {
            Self::Utilization { percent, requests } => {
                let (mut used, mut requested, mut pods) = (0_i128, 0_i128, 0_i128);
                for (key, metric) in metrics {
                    // Metrics of pods that the selector does not select any more.
                    let Some(request) = requests.get(key) else {
                        continue;
                    };
                    used += i128::from(metric.value);
                    requested += i128::from(*request);
                    pods += 1;
                }
                if requested == 0 {
                    return Err("no metrics returned matched known pods".into());
                }
                let utilization = saturated_i32(used * 100 / requested);
                Ok(Usage {
                    ratio: f64::from(utilization) / f64::from(*percent),
                    average: saturated_i64(used / pods),
                    utilization: Some(utilization),
                })
            }
            Self::Average { milli } => {
                let used: i128 = metrics
                    .values()
                    .map(|metric| i128::from(metric.value))
                    .sum();
                let average = saturated_i64(used / metrics.len().max(1) as i128);
                Ok(Usage {
                    ratio: average as f64 / *milli as f64,
                    average,
                    utilization: None,
                })
            }
        }
    }

    /// The assumed usage of a pod without metrics when replicas would be removed: all that it
    /// requests, or more if the target is above that.
    fn full_usage(&self, key: &PodKey) -> i64 {
        match self {
            Self::Utilization { percent, requests } => {
                let request = requests.get(key).copied().unwrap_or(0);
                saturated_i64(i128::from(request) * i128::from((*percent).max(100)) / 100)
            }
            Self::Average { milli } => *milli,
        }
    }
}

fn saturated_i64(number: i128) -> i64 {
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn saturated_i32(number: i128) -> i32 {
    number.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}
