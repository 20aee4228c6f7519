//! Computes the replicas that a FederatedHPA's metrics ask for, and the metrics of its status.

use std::future::Future;

use client::Api;
use futures_util::future::join_all;
use jiff::Timestamp;
use machinery::{LabelSelector, Quantity};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::member_metrics::{
    DescribedObject, milli, read_object_metric, read_pods_metric, read_resource_metrics,
};
use super::pod_groups::{PodKey, PodMetric, PodMetrics};
use super::replica_calculator::{CalculatorInput, PodTarget, ReplicaProposal};
use super::settings::FederatedHpaSettings;
use super::spec::{
    FederatedHpaSpec, MetricIdentifier, MetricSpec, ObjectMetricSource, PodsMetricSource,
    ResourceMetricSource,
};
use super::target_state::{MEMBER_TIMEOUT, TargetMember, TargetState};
use crate::metrics::{FEDERATED_HPA_METRICS, ScaleAction, ScaleError, observe_pull};
use crate::scale_target::resolve_resource;

/// The target of a metric.
struct MetricResult {
    proposal: ReplicaProposal,
    /// The entry of `status.currentMetrics`.
    status: Value,
    /// Name in messages.
    name: String,
}

/// Why a metric asks for nothing: the reason of the event and of the condition, the error, and the
/// error as it is told of all metrics.
#[derive(Debug)]
pub(super) struct MetricError {
    pub(super) reason: &'static str,
    pub(super) error: String,
    summary: String,
}

const INVALID_SOURCE_TYPE: &str = "InvalidMetricSourceType";

impl MetricError {
    fn label(&self) -> ScaleError {
        match self.reason {
            INVALID_SOURCE_TYPE => ScaleError::Spec,
            _ => ScaleError::Internal,
        }
    }
}

/// The result of all metrics.
#[derive(Debug)]
pub(super) struct MetricsResult {
    /// The most replicas that a metric asks for, and its name; none if they must not be applied.
    pub(super) desired: Option<(i32, String)>,
    pub(super) statuses: Vec<Value>,
    /// Of each metric that failed.
    pub(super) errors: Vec<MetricError>,
    /// All errors in one.
    pub(super) error: Option<String>,
}

impl MetricsResult {
    /// As the metrics tell it: if any metric failed, something was not known.
    pub(super) fn error_label(&self) -> ScaleError {
        match self.error {
            Some(_) => ScaleError::Internal,
            None => ScaleError::None,
        }
    }
}

/// Computes replicas from the metrics of the members.
pub(super) struct MetricsReader<'a> {
    /// Resolves the kinds of described objects.
    pub(super) api: &'a dyn Api,
    pub(super) namespace: &'a str,
    pub(super) state: &'a TargetState,
    pub(super) settings: &'a FederatedHpaSettings,
    pub(super) now: Timestamp,
}

impl MetricsReader<'_> {
    pub(super) async fn desired_replicas(&self, spec: &FederatedHpaSpec) -> MetricsResult {
        let mut desired: Option<(i32, String)> = None;
        let (mut statuses, mut errors) = (Vec::new(), Vec::new());
        let current = self.state.template_replicas;
        for metric in &spec.metrics {
            let began = Instant::now();
            let read = self.read_metric(metric).await;
            let (action, error) = match &read {
                Ok(result) => {
                    let proposed = result.proposal.replicas;
                    (ScaleAction::between(current, proposed), ScaleError::None)
                }
                Err(error) => (ScaleAction::None, error.label()),
            };
            let took = began.elapsed();
            FEDERATED_HPA_METRICS.record_computation(&metric.kind, action, error, took);
            match read {
                Ok(result) => {
                    statuses.push(result.status);
                    let replicas = result.proposal.replicas;
                    if desired
                        .as_ref()
                        .is_none_or(|(most, _)| *most == 0 || replicas > *most)
                    {
                        desired = Some((replicas, result.name));
                    }
                }
                Err(error) => {
                    // As with Kubernetes, an entry of the status stands for every metric.
                    statuses.push(json!({"type": ""}));
                    errors.push(error);
                }
            }
        }
        let error = errors.first().map(|first: &MetricError| {
            let (invalid, all, first) = (errors.len(), spec.metrics.len(), &first.summary);
            format!("invalid metrics ({invalid} invalid out of {all}), first error is: {first}")
        });
        // A metric that is not known could ask for more replicas: none are removed.
        let applies = |replicas: &i32| errors.is_empty() || *replicas >= current;
        MetricsResult {
            desired: desired.filter(|(replicas, _)| applies(replicas)),
            statuses,
            errors,
            error,
        }
    }

    async fn read_metric(&self, metric: &MetricSpec) -> Result<MetricResult, MetricError> {
        let failed = |reason, what: String, error: String| MetricError {
            reason,
            summary: format!("failed to get {what} value: {error}"),
            error,
        };
        if let Some(source) = &metric.object {
            let result = self.by_object(source).await;
            let what = || "object metric".to_owned();
            return result.map_err(|e| failed("FailedGetObjectMetric", what(), e));
        }
        if let Some(source) = &metric.pods {
            let result = self.by_pods_metric(source).await;
            let what = || "pods metric".to_owned();
            return result.map_err(|e| failed("FailedGetPodsMetric", what(), e));
        }
        if let Some(source) = &metric.resource {
            let result = self.by_resource(source, "").await;
            let what = || format!("{} resource metric", source.name);
            return result.map_err(|e| failed("FailedGetResourceMetric", what(), e));
        }
        if let Some(source) = &metric.container_resource {
            let result = self.by_resource(source, &source.container).await;
            let what = || format!("{} container metric", source.container);
            return result.map_err(|e| failed("FailedGetContainerResourceMetric", what(), e));
        }
        let error = format!("unknown metric source type {:?}", metric.kind);
        Err(MetricError {
            reason: INVALID_SOURCE_TYPE,
            summary: error.clone(),
            error,
        })
    }

    fn input(&self) -> CalculatorInput<'_> {
        let (replicas, scale) = (self.state.template_replicas, &self.state.scale);
        CalculatorInput {
            current_replicas: replicas,
            status_replicas: scale.status_replicas,
            calibration: f64::from(scale.spec_replicas) / f64::from(replicas),
            pods: &self.state.pods,
            tolerance: self.settings.tolerance,
            periods: self.settings.periods(),
            now: self.now,
        }
    }

    async fn by_resource(
        &self,
        source: &ResourceMetricSource,
        container: &str,
    ) -> Result<MetricResult, String> {
        let resource = &*source.name;
        let (target, name) = match (source.target.average_value, source.target.average_utilization) {
            (Some(average), _) => {
                let milli = milli(average);
                (PodTarget::Average { milli, resource }, format!("{resource} resource"))
            }
            (None, Some(percent)) => {
                let target = PodTarget::Utilization { percent, resource, container };
                let of = if container.is_empty() { "" } else { "container " };
                (target, format!("{resource} {of}resource utilization (percentage of request)"))
            }
            (None, None) => return Err("invalid resource metric source: neither an average utilization target nor an average value target was set".into()),
        };
        let pull = self.resource_metrics(resource, container);
        let metrics = observe_pull(&FEDERATED_HPA_METRICS.pull_resource_metric, pull).await;
        let metrics =
            metrics.map_err(|e| format!("unable to get metrics for resource {resource}: {e}"));
        let proposal = metrics.and_then(|metrics| self.input().by_pods(target, metrics));
        let proposal =
            proposal.map_err(|e| format!("failed to get {resource} utilization: {e}"))?;
        let mut current = json!({"averageValue": quantity(proposal.usage)});
        if let Some(percent) = proposal.utilization {
            current["averageUtilization"] = percent.into();
        }
        let status = match container {
            "" => json!({"type": "Resource", "resource": {"name": resource, "current": current}}),
            container => json!({"type": "ContainerResource", "containerResource":
                {"name": resource, "container": container, "current": current}}),
        };
        Ok(MetricResult {
            proposal,
            status,
            name,
        })
    }

    async fn by_pods_metric(&self, source: &PodsMetricSource) -> Result<MetricResult, String> {
        let metric = &*source.metric.name;
        let series = LabelSelector::from_value(&source.metric.selector)?;
        let Some(average) = source.target.average_value else {
            return Err("invalid pods metric source: no average value target was set".into());
        };
        let queries = self.state.members.iter().map(|member| {
            let series = &series;
            async move {
                let (api, cluster) = (&*member.api, &member.cluster);
                let selector = &member.selector;
                let values =
                    read_pods_metric(api, cluster, self.namespace, selector, metric, series);
                values.await.map_err(|e| e.to_string())
            }
        });
        let pull = pod_metrics(queries.map(within_timeout), "custom");
        let metrics = observe_pull(&FEDERATED_HPA_METRICS.pull_raw_metric, pull).await;
        let metrics = metrics.map_err(|e| format!("unable to get metric {metric}: {e}"))?;
        let target = PodTarget::Average {
            milli: milli(average),
            resource: "",
        };
        let proposal = self.input().by_pods(target, metrics)?;
        let status = json!({"type": "Pods", "pods": {"metric": identifier(&source.metric),
            "current": {"averageValue": quantity(proposal.usage)}}});
        Ok(MetricResult {
            proposal,
            status,
            name: format!("pods metric {metric}"),
        })
    }

    async fn by_object(&self, source: &ObjectMetricSource) -> Result<MetricResult, String> {
        let series = LabelSelector::from_value(&source.metric.selector)?;
        let (object, metric) = (&source.described_object, &*source.metric.name);
        let pull = self.object_metric(source, &series);
        let value = observe_pull(&FEDERATED_HPA_METRICS.pull_object_metric, pull).await;
        let value = value.map_err(|e| {
            let (kind, name, namespace) = (&object.kind, &object.name, self.namespace);
            format!("unable to get metric {metric}: {e} on {kind} {namespace}/{name}")
        });
        let described = json!({"apiVersion": object.api_version, "kind": object.kind,
            "name": object.name});
        let metric_identifier = identifier(&source.metric);
        match (&*source.target.kind, source.target.value, source.target.average_value) {
            ("Value", Some(target), _) => {
                let proposal = self.input().by_object_value(milli(target), value?)?;
                let status = json!({"type": "Object", "object": {"describedObject": described,
                    "metric": metric_identifier, "current": {"value": quantity(proposal.usage)}}});
                let name = format!("{} metric {metric}", object.kind);
                Ok(MetricResult { proposal, status, name })
            }
            ("AverageValue", _, Some(target)) => {
                let value = value.map_err(|e| format!("failed to get {metric} object metric: {e}"))?;
                let proposal = self.input().by_object_average(milli(target), value);
                let status = json!({"type": "Object", "object": {"describedObject": described,
                    "metric": metric_identifier,
                    "current": {"averageValue": quantity(proposal.usage)}}});
                let name = format!("external metric {metric}({series})");
                Ok(MetricResult { proposal, status, name })
            }
            _ => Err("invalid object metric source: neither a value target nor an average value target was set".into()),
        }
    }

    /// The sum over the members that have the metric.
    async fn object_metric(
        &self,
        source: &ObjectMetricSource,
        series: &LabelSelector,
    ) -> Result<i64, String> {
        let target = &source.described_object;
        let is_namespace = target.kind == "Namespace" && target.api_version == "v1";
        let resource = match is_namespace {
            true => None,
            false => {
                let resource = resolve_resource(self.api, target).await;
                let resource = resource.map_err(|e| e.to_string())?;
                let missing = || format!("no kind {} in {}", target.kind, target.api_version);
                Some(resource.ok_or_else(missing)?)
            }
        };
        let object = DescribedObject {
            resource: resource.as_ref(),
            namespace: self.namespace,
            name: &target.name,
        };
        let metric = &*source.metric.name;
        let queries = self.state.members.iter().map(|member| {
            let read = read_object_metric(&*member.api, &object, metric, series);
            within_timeout(async { read.await.map_err(|e| e.to_string()) })
        });
        let (mut sum, mut first_error) = (None, None);
        for answer in join_all(queries).await {
            match answer {
                Ok(Some(value)) => sum = Some(value.saturating_add(sum.unwrap_or(0))),
                Ok(None) => {}
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        sum.ok_or_else(|| unable_to_fetch("custom", first_error))
    }

    async fn resource_metrics(
        &self,
        resource: &str,
        container: &str,
    ) -> Result<PodMetrics, String> {
        let queries = self.state.members.iter().map(|member| {
            let TargetMember {
                api,
                cluster,
                selector,
            } = member;
            within_timeout(read_resource_metrics(
                &**api,
                cluster,
                self.namespace,
                selector,
                resource,
                container,
            ))
        });
        pod_metrics(queries, "resource").await
    }
}

/// The answers of all members. Those of a member that does not answer are missing.
async fn pod_metrics(
    queries: impl Iterator<Item = impl Future<Output = Result<Vec<(PodKey, PodMetric)>, String>>>,
    api: &str,
) -> Result<PodMetrics, String> {
    let (mut metrics, mut first_error) = (PodMetrics::new(), None);
    for answer in join_all(queries).await {
        match answer {
            Ok(of_member) => metrics.extend(of_member),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match metrics.is_empty() {
        true => Err(unable_to_fetch(api, first_error)),
        false => Ok(metrics),
    }
}

fn unable_to_fetch(api: &str, error: Option<String>) -> String {
    match error {
        Some(error) => format!("unable to fetch metrics from {api} metrics API: {error}"),
        None => format!("no metrics returned from {api} metrics API"),
    }
}

async fn within_timeout<T>(answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| format!("no answer within {} s", MEMBER_TIMEOUT.as_secs());
    timeout(MEMBER_TIMEOUT, answer).await.map_err(late)?
}

fn quantity(milli: i64) -> String {
    Quantity::from_milli(milli).to_string()
}

fn identifier(metric: &MetricIdentifier) -> Value {
    let mut identifier = json!({"name": metric.name});
    if !metric.selector.is_null() {
        identifier["selector"] = metric.selector.clone();
    }
    identifier
}
