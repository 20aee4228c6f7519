//! Sorts the pods of a scale target by what their metrics are worth: ready, unready, without
//! metrics, or to be ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// A pod of a member cluster. Pods of different clusters may have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    pub(crate) cluster: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// A measured value of a pod, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodMetric {
    pub(crate) value: i64,
    pub(crate) timestamp: Timestamp,
    pub(crate) window: SignedDuration,
}

pub(crate) type PodMetrics = BTreeMap<PodKey, PodMetric>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodPhase {
    Pending,
    Failed,
    Running,
    Other,
}

/// The condition `Ready` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyCondition {
    pub(crate) is_true: bool,
    pub(crate) is_false: bool,
    pub(crate) last_transition: Timestamp,
}

/// The requests of a container by resource, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerRequests {
    pub(crate) name: String,
    pub(crate) requests: BTreeMap<String, i64>,
}

/// The fields of a pod that the calculation reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScaledPod {
    pub(crate) key: PodKey,
    pub(crate) phase: PodPhase,
    pub(crate) deleting: bool,
    pub(crate) start_time: Option<Timestamp>,
    pub(crate) ready: Option<ReadyCondition>,
    pub(crate) containers: Vec<ContainerRequests>,
}

impl ScaledPod {
    pub(crate) fn is_ready(&self) -> bool {
        self.phase == PodPhase::Running && self.ready.is_some_and(|ready| ready.is_true)
    }
}

/// The periods after the start of a pod in which its CPU is not representative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodStartPeriods {
    pub(crate) cpu_initialization: SignedDuration,
    pub(crate) initial_readiness_delay: SignedDuration,
}

/// The pods of a scale target whose metrics do not count as they are, and the number of the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodGroups {
    pub(crate) ready: usize,
    pub(crate) unready: Vec<PodKey>,
    pub(crate) missing: Vec<PodKey>,
    pub(crate) ignored: Vec<PodKey>,
}

/// Only metrics of CPU depend on the readiness of a pod.
pub(crate) fn group_pods(
    pods: &[ScaledPod],
    metrics: &PodMetrics,
    is_cpu: bool,
    periods: PodStartPeriods,
    now: Timestamp,
) -> PodGroups {
    let mut groups = PodGroups::default();
    for pod in pods {
        let key = || pod.key.clone();
        if pod.deleting || pod.phase == PodPhase::Failed {
            groups.ignored.push(key());
        } else if pod.phase == PodPhase::Pending {
            groups.unready.push(key());
        } else if let Some(metric) = metrics.get(&pod.key) {
            if is_cpu && has_unrepresentative_cpu(pod, metric, periods, now) {
                groups.unready.push(key());
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.push(key());
        }
    }
    groups
}

fn has_unrepresentative_cpu(
    pod: &ScaledPod,
    metric: &PodMetric,
    periods: PodStartPeriods,
    now: Timestamp,
) -> bool {
    let (Some(ready), Some(started)) = (pod.ready, pod.start_time) else {
        return true;
    };
    if started + periods.cpu_initialization > now {
        // The measurement must have begun after the pod became ready.
        return ready.is_false || metric.timestamp < ready.last_transition + metric.window;
    }
    // It was never ready if its readiness last changed right after the start.
    ready.is_false && started + periods.initial_readiness_delay > ready.last_transition
}

/// The requests of a resource by pod: of one container, or of all if `container` is empty. An error
/// if one of them requests none.
pub(crate) fn requests_of_pods(
    pods: &[ScaledPod],
    container: &str,
    resource: &str,
) -> Result<BTreeMap<PodKey, i64>, String> {
    let mut requests = BTreeMap::new();
    for pod in pods {
        let mut sum = 0_i64;
        let counted = |c: &&ContainerRequests| container.is_empty() || c.name == container;
        for counted in pod.containers.iter().filter(counted) {
            let Some(request) = counted.requests.get(resource) else {
                return Err(format!(
                    "missing request for {resource} in container {} of Pod {}",
                    counted.name, pod.key.name
                ));
            };
            sum = sum.saturating_add(*request);
        }
        requests.insert(pod.key.clone(), sum);
    }
    Ok(requests)
}
