//! Serves `custom.metrics.k8s.io` and `external.metrics.k8s.io` in a simulated cluster. The values
//! are annotations: `custom-metric.flotilla.io/NAME` of the described object, and
//! `external-metric.flotilla.io/NAME` of a ConfigMap, whose labels are those of the series.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, Error, ListOptions, ResourcePath, ignore_not_found};
use flotilla_http::{
    DynamicGroupProvider, DynamicGroupProviders, DynamicResourceRequest, DynamicResponse,
};
use jiff::Timestamp;
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, LabelSelector, Object, Quantity, Status, UserInfo};
use metrics_adapter::metrics_api::{
    ALL_OBJECTS, CUSTOM_METRICS, CustomMetricPath, CustomMetricSelectors, CustomMetricValue,
    EXTERNAL_METRICS, ExternalMetricPath, external_metric_list,
};
use serde_json::{Map, Value, json};

const CUSTOM_METRIC_PREFIX: &str = "custom-metric.flotilla.io/";
const EXTERNAL_METRIC_PREFIX: &str = "external-metric.flotilla.io/";

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

/// The resources whose objects may have custom metrics: name, kind and whether they have namespaces.
static DESCRIBED: [(Gvr, &str, bool); 8] = [
    (Gvr::from_static("", "v1", "pods"), "Pod", true),
    (Gvr::from_static("", "v1", "services"), "Service", true),
    (Gvr::from_static("", "v1", "namespaces"), "Namespace", false),
    (Gvr::from_static("", "v1", "nodes"), "Node", false),
    (
        Gvr::from_static("apps", "v1", "deployments"),
        "Deployment",
        true,
    ),
    (
        Gvr::from_static("apps", "v1", "statefulsets"),
        "StatefulSet",
        true,
    ),
    (Gvr::from_static("batch", "v1", "jobs"), "Job", true),
    (
        Gvr::from_static("networking.k8s.io", "v1", "ingresses"),
        "Ingress",
        true,
    ),
];

/// The providers of both groups.
pub fn hollow_custom_metrics_providers(
    api: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
) -> DynamicGroupProviders {
    let objects = AnnotatedObjects {
        api: Arc::clone(api),
        clock: Arc::clone(clock),
    };
    HashMap::from([
        (
            CUSTOM_METRICS,
            Arc::new(HollowCustomMetrics(objects.clone())) as _,
        ),
        (
            EXTERNAL_METRICS,
            Arc::new(HollowExternalMetrics(objects)) as _,
        ),
    ])
}

#[derive(Clone)]
struct AnnotatedObjects {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
}

/// The metrics of an object whose annotations have the prefix. Those without a valid value do not
/// count.
fn metrics_of(object: &Object, prefix: &str) -> Vec<(String, Quantity)> {
    let annotations = object.annotations().into_iter();
    let metrics = annotations.filter_map(|(key, value)| {
        let name = key.strip_prefix(prefix)?;
        Some((name.to_owned(), Quantity::parse(&value).ok()?))
    });
    metrics.collect()
}

fn metric_of(object: &Object, prefix: &str, metric: &str) -> Option<Quantity> {
    let mut metrics = metrics_of(object, prefix).into_iter();
    metrics.find_map(|(name, value)| (name == metric).then_some(value))
}

/// The failure of a read in the same process.
fn status_of(error: Error) -> Status {
    match error {
        Error::Status(status) => *status,
        error => Status::internal(error),
    }
}

impl AnnotatedObjects {
    async fn list(
        &self,
        resource: &Gvr,
        namespace: &str,
        label_selector: &str,
    ) -> Result<Vec<Object>, Status> {
        let options = ListOptions {
            label_selector: label_selector.to_owned(),
            ..ListOptions::default()
        };
        let at = ResourcePath::collection(resource, namespace);
        let list = self.api.list(at, &options).await;
        Ok(list.map_err(status_of)?.items)
    }

    /// The object of a name, or all that are selected.
    async fn find(
        &self,
        resource: &Gvr,
        path: &CustomMetricPath<'_>,
        label_selector: &str,
    ) -> Result<Vec<Object>, Status> {
        if path.name == ALL_OBJECTS {
            return self.list(resource, path.namespace, label_selector).await;
        }
        let at = ResourcePath::object(resource, path.namespace, path.name);
        let object = ignore_not_found(self.api.get(at).await).map_err(status_of)?;
        Ok(object.into_iter().collect())
    }

    /// The names of the metrics of a resource.
    async fn metric_names(&self, resource: &Gvr, prefix: &str) -> Result<BTreeSet<String>, Status> {
        let mut names = BTreeSet::new();
        for object in self.list(resource, "", "").await? {
            names.extend(
                metrics_of(&object, prefix)
                    .into_iter()
                    .map(|(name, _)| name),
            );
        }
        Ok(names)
    }
}

struct HollowCustomMetrics(AnnotatedObjects);

#[async_trait]
impl DynamicGroupProvider for HollowCustomMetrics {
    async fn api_resources(&self, _: &UserInfo, _: &str) -> Result<DynamicResponse, Status> {
        let mut resources = Vec::new();
        for (resource, _, namespaced) in &DESCRIBED {
            let names = self.0.metric_names(resource, CUSTOM_METRIC_PREFIX).await?;
            let group_resource = resource.group_resource();
            resources.extend(names.iter().map(|metric| {
                json!({"name": format!("{group_resource}/{metric}"), "singularName": "",
                    "namespaced": namespaced, "kind": "MetricValueList", "verbs": ["get"]})
            }));
        }
        Ok(DynamicResponse {
            value: resources.into(),
            warnings: Vec::new(),
        })
    }

    async fn get(&self, request: &DynamicResourceRequest<'_>) -> Result<DynamicResponse, Status> {
        let path = CustomMetricPath::parse(request)?;
        let selectors = CustomMetricSelectors::parse(request, &path)?;
        let named = |(gvr, ..): &&(Gvr, &str, bool)| gvr.group_resource() == path.resource;
        let Some((resource, kind, _)) = DESCRIBED.iter().find(named) else {
            return Err(path.not_found());
        };
        let series = LabelSelector::parse(selectors.series).map_err(Status::bad_request)?;
        let now = self.0.clock.now();
        let mut values = Vec::new();
        for object in self.0.find(resource, &path, selectors.objects).await? {
            // The series of annotations have no labels.
            let value = metric_of(&object, CUSTOM_METRIC_PREFIX, path.metric);
            if let Some(value) = value.filter(|_| series.matches(|_| None)) {
                let described = object_reference(resource, kind, &object);
                let value = CustomMetricValue::measured(described, path.metric, value, now);
                values.push(value);
            }
        }
        if values.is_empty() {
            return Err(path.not_found());
        }
        Ok(DynamicResponse {
            value: CustomMetricValue::to_list(request.version, &values),
            warnings: Vec::new(),
        })
    }
}

fn object_reference(resource: &Gvr, kind: &str, object: &Object) -> Map<String, Value> {
    let mut reference = Map::new();
    let api_version = machinery::names::join_api_version(&resource.group, &resource.version);
    reference.insert("apiVersion".to_owned(), api_version.into());
    reference.insert("kind".to_owned(), kind.into());
    reference.insert("name".to_owned(), object.name().into());
    if !object.namespace().is_empty() {
        reference.insert("namespace".to_owned(), object.namespace().into());
    }
    reference
}

struct HollowExternalMetrics(AnnotatedObjects);

#[async_trait]
impl DynamicGroupProvider for HollowExternalMetrics {
    async fn api_resources(&self, _: &UserInfo, _: &str) -> Result<DynamicResponse, Status> {
        let names = self.0.metric_names(&CONFIG_MAPS, EXTERNAL_METRIC_PREFIX);
        let resource = |name: String| {
            json!({"name": name, "singularName": "", "namespaced": true,
                "kind": "ExternalMetricValueList", "verbs": ["get"]})
        };
        Ok(DynamicResponse {
            value: names.await?.into_iter().map(resource).collect(),
            warnings: Vec::new(),
        })
    }

    async fn get(&self, request: &DynamicResourceRequest<'_>) -> Result<DynamicResponse, Status> {
        let path = ExternalMetricPath::parse(request)?;
        let config_maps = self.0.list(&CONFIG_MAPS, path.namespace, path.series);
        let now = self.0.clock.now();
        let mut items = Vec::new();
        for config_map in config_maps.await? {
            if let Some(value) = metric_of(&config_map, EXTERNAL_METRIC_PREFIX, path.metric) {
                items.push(external_value(&config_map, path.metric, value, now));
            }
        }
        Ok(DynamicResponse {
            value: external_metric_list(items),
            warnings: Vec::new(),
        })
    }
}

fn external_value(config_map: &Object, metric: &str, value: Quantity, now: Timestamp) -> Value {
    let labels = config_map.meta().labels.iter();
    let labels: BTreeMap<String, String> = labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    json!({"metricName": metric, "metricLabels": labels, "timestamp": rfc3339_seconds(now),
        "value": value})
}
