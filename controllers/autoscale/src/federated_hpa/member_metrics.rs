//! Reads the pods and the metrics of a scale target from one member cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Api, Error, ListOptions, ResourcePath, Result};
use jiff::{SignedDuration, Timestamp};
use machinery::{Gvr, LabelSelector, Quantity};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::pod_groups::{
    ContainerRequests, PodKey, PodMetric, PodPhase, ReadyCondition, ScaledPod,
};

static PODS: Gvr = Gvr::from_static("", "v1", "pods");
static POD_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "pods");
/// The versions of custom.metrics.k8s.io, the preferred one first.
const CUSTOM_METRICS_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Window of a custom metric that does not tell it.
const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_mins(1);
/// Pods of one target in one cluster, at most.
const MAX_PODS: u64 = 50_000;

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodView {
    spec: PodSpecView,
    status: PodStatusView,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodSpecView {
    containers: Vec<ContainerView>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerView {
    name: String,
    resources: ResourcesView,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourcesView {
    requests: BTreeMap<String, Quantity>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatusView {
    phase: String,
    start_time: Option<Timestamp>,
    conditions: Vec<PodConditionView>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodConditionView {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

/// A pod and its labels.
pub(crate) type LabeledPod = (ScaledPod, BTreeMap<String, String>);

/// Reads the pods that a selector selects.
pub(crate) async fn read_pods(
    api: &dyn Api,
    cluster: &Arc<str>,
    namespace: &str,
    selector: &str,
) -> Result<Vec<LabeledPod>> {
    let options = ListOptions {
        label_selector: selector.to_owned(),
        // From the member's watch cache.
        resource_version: "0".into(),
        limit: MAX_PODS,
        ..ListOptions::default()
    };
    let at = ResourcePath::collection(&PODS, namespace);
    let pods = api.list(at, &options).await?.items;
    let pods = pods.iter().map(|pod| {
        let view = pod.decode::<PodView>()?;
        let labels = pod.meta().labels.iter();
        let labels = labels
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Ok((
            view.scaled(cluster, pod.name(), pod.meta().deleting),
            labels,
        ))
    });
    pods.collect()
}

impl PodView {
    fn scaled(&self, cluster: &Arc<str>, name: &str, deleting: bool) -> ScaledPod {
        let ready = self.status.conditions.iter().find(|c| c.kind == "Ready");
        ScaledPod {
            key: pod_key(cluster, name),
            phase: match &*self.status.phase {
                "Pending" => PodPhase::Pending,
                "Failed" => PodPhase::Failed,
                "Running" => PodPhase::Running,
                _ => PodPhase::Other,
            },
            deleting,
            start_time: self.status.start_time,
            ready: ready.map(|condition| ReadyCondition {
                is_true: condition.status == "True",
                is_false: condition.status == "False",
                last_transition: condition.last_transition_time.unwrap_or_default(),
            }),
            containers: self.spec.containers.iter().map(requests_of).collect(),
        }
    }
}

fn requests_of(container: &ContainerView) -> ContainerRequests {
    let requests = container.resources.requests.iter();
    ContainerRequests {
        name: container.name.clone(),
        requests: requests
            .map(|(name, q)| (name.clone(), milli(*q)))
            .collect(),
    }
}

fn pod_key(cluster: &Arc<str>, name: &str) -> PodKey {
    PodKey {
        cluster: Arc::clone(cluster),
        name: Arc::from(name),
    }
}

/// A quantity in thousandths.
pub(crate) fn milli(quantity: Quantity) -> i64 {
    let milli = quantity.milli_value();
    milli.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodMetricsView {
    timestamp: Timestamp,
    window: String,
    containers: Vec<ContainerMetricsView>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerMetricsView {
    name: String,
    usage: BTreeMap<String, Quantity>,
}

/// Reads what pods use of a resource: in one container, or in all if `container` is empty. Pods
/// that lack a figure are left out; a pod without the container is an error.
pub(crate) async fn read_resource_metrics(
    api: &dyn Api,
    cluster: &Arc<str>,
    namespace: &str,
    selector: &str,
    resource: &str,
    container: &str,
) -> std::result::Result<Vec<(PodKey, PodMetric)>, String> {
    let options = ListOptions {
        label_selector: selector.to_owned(),
        ..ListOptions::default()
    };
    let at = ResourcePath::collection(&POD_METRICS, namespace);
    let listed = api.list(at, &options).await.map_err(|e| e.to_string())?;
    let mut metrics = Vec::new();
    for pod in &listed.items {
        let view = pod.decode::<PodMetricsView>().map_err(|e| e.to_string())?;
        let counted = |c: &&ContainerMetricsView| container.is_empty() || c.name == container;
        let counted: Vec<_> = view.containers.iter().filter(counted).collect();
        if counted.is_empty() && !container.is_empty() {
            return Err(format!(
                "failed to get container metrics: container {container} not present in metrics for pod {namespace}/{}",
                pod.name()
            ));
        }
        let usage = counted
            .iter()
            .map(|c| c.usage.get(resource).copied().map(milli));
        let Some(usage) = usage
            .collect::<Option<Vec<i64>>>()
            .filter(|all| !all.is_empty())
        else {
            continue;
        };
        let window = machinery::duration::parse(&view.window).unwrap_or_default();
        metrics.push((
            pod_key(cluster, pod.name()),
            PodMetric {
                value: usage
                    .iter()
                    .fold(0, |sum: i64, value| sum.saturating_add(*value)),
                timestamp: view.timestamp,
                window: SignedDuration::try_from(window).unwrap_or_default(),
            },
        ));
    }
    Ok(metrics)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetricValueList {
    items: Vec<MetricValueView>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetricValueView {
    described_object: DescribedObjectName,
    timestamp: Timestamp,
    window_seconds: Option<i64>,
    /// Of version v1beta1.
    window: Option<i64>,
    value: Option<Quantity>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DescribedObjectName {
    name: String,
}

/// Reads a custom metric of the pods that a selector selects.
pub(crate) async fn read_pods_metric(
    api: &dyn Api,
    cluster: &Arc<str>,
    namespace: &str,
    selector: &str,
    metric: &str,
    series: &LabelSelector,
) -> Result<Vec<(PodKey, PodMetric)>> {
    let path = format!(
        "namespaces/{}/pods/*/{}?labelSelector={}&metricLabelSelector={}",
        encoded(namespace),
        encoded(metric),
        encoded(selector),
        encoded(&series.to_string())
    );
    let values = read_custom_metric(api, &path).await?.into_iter();
    let metrics = values.filter_map(|item| {
        let seconds = item.window_seconds.or(item.window);
        let metric = PodMetric {
            value: milli(item.value?),
            timestamp: item.timestamp,
            window: seconds.map_or(DEFAULT_WINDOW, SignedDuration::from_secs),
        };
        Some((pod_key(cluster, &item.described_object.name), metric))
    });
    Ok(metrics.collect())
}

/// The object whose metric is read.
pub(crate) struct DescribedObject<'a> {
    /// None: the namespace itself.
    pub(crate) resource: Option<&'a Gvr>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Reads a custom metric of one object, in thousandths.
pub(crate) async fn read_object_metric(
    api: &dyn Api,
    object: &DescribedObject<'_>,
    metric: &str,
    series: &LabelSelector,
) -> Result<Option<i64>> {
    let (namespace, metric) = (encoded(object.namespace), encoded(metric));
    let of = match object.resource {
        None => format!("namespaces/{namespace}/metrics/{metric}"),
        Some(resource) => {
            let (plural, name) = (&resource.resource, encoded(object.name));
            let group = match &*resource.group {
                "" => String::new(),
                group => format!(".{group}"),
            };
            format!("namespaces/{namespace}/{plural}{group}/{name}/{metric}")
        }
    };
    let path = format!("{of}?metricLabelSelector={}", encoded(&series.to_string()));
    let values = read_custom_metric(api, &path).await?;
    let values: Vec<i64> = values
        .iter()
        .filter_map(|item| item.value.map(milli))
        .collect();
    Ok((!values.is_empty()).then(|| values.iter().fold(0, |sum: i64, v| sum.saturating_add(*v))))
}

async fn read_custom_metric(api: &dyn Api, path: &str) -> Result<Vec<MetricValueView>> {
    let mut missing = None;
    for version in CUSTOM_METRICS_VERSIONS {
        let path = format!("/apis/custom.metrics.k8s.io/{version}/{path}");
        match api.get_raw(&path).await {
            Err(e) if e.is_not_found() => missing = Some(e),
            other => {
                let list: MetricValueList = machinery::json::from_slice(&other?)
                    .map_err(|e| Error::Protocol(format!("custom metrics: {e}")))?;
                return Ok(list.items);
            }
        }
    }
    missing.map_or(Ok(Vec::new()), Err)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
