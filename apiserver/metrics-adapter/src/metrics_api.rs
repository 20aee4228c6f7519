//! The groups of metrics, and the paths and values of `custom.metrics.k8s.io` and `external.metrics.k8s.io`
//! (custom-metrics-apiserver's `apiserver/installer`, `apiserver/endpoints/handlers`; the types are
//! those of `k8s.io/metrics`). No I/O.

use flotilla_http::DynamicResourceRequest;
use jiff::Timestamp;
use machinery::selector::FieldSelector;
use machinery::time::rfc3339_seconds;
use machinery::{LabelSelector, Quantity, Status};
use registry::{DynamicApiGroup, DynamicResourceScope};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub const RESOURCE_METRICS: &str = "metrics.k8s.io";
pub const CUSTOM_METRICS: &str = "custom.metrics.k8s.io";
/// The preferred version first.
pub const CUSTOM_METRICS_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
pub const EXTERNAL_METRICS: &str = "external.metrics.k8s.io";
pub const EXTERNAL_METRICS_VERSION: &str = "v1beta1";

/// Whether a group is one of metrics.
pub fn is_metrics_group(group: &str) -> bool {
    [RESOURCE_METRICS, CUSTOM_METRICS, EXTERNAL_METRICS].contains(&group)
}

/// The groups whose resources are metrics, for a registry.
pub const METRICS_GROUPS: &[DynamicApiGroup] = &[
    DynamicApiGroup {
        name: CUSTOM_METRICS,
        versions: &CUSTOM_METRICS_VERSIONS,
        scope: DynamicResourceScope::DescribedResource,
    },
    DynamicApiGroup {
        name: EXTERNAL_METRICS,
        versions: &[EXTERNAL_METRICS_VERSION],
        scope: DynamicResourceScope::Namespace,
    },
];

/// The name that stands for all objects of a resource.
pub const ALL_OBJECTS: &str = "*";
/// The resource of metrics that describe a namespace.
pub const NAMESPACES: &str = "namespaces";

/// The metric of one object, or of all objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomMetricPath<'a> {
    /// Empty: the resource has no namespaces, or all namespaces.
    pub namespace: &'a str,
    /// `RESOURCE` or `RESOURCE.GROUP`.
    pub resource: &'a str,
    /// The name, or [`ALL_OBJECTS`].
    pub name: &'a str,
    pub metric: &'a str,
}

impl<'a> CustomMetricPath<'a> {
    pub fn parse(request: &DynamicResourceRequest<'a>) -> Result<Self, Status> {
        let DynamicResourceRequest {
            namespace,
            resource,
            ..
        } = *request;
        let of_namespace = |name, metric| Self {
            namespace: "",
            resource: NAMESPACES,
            name,
            metric,
        };
        match (request.name, request.subresource) {
            (Some(metric), "") if resource == "metrics" && !namespace.is_empty() => {
                Ok(of_namespace(namespace, metric))
            }
            (Some(name), metric) if !metric.is_empty() => Ok(match resource {
                NAMESPACES => of_namespace(name, metric),
                _ => Self {
                    namespace,
                    resource,
                    name,
                    metric,
                },
            }),
            (None, _) if !namespace.is_empty() => Err(Status::bad_request("invalid request path")),
            _ => Err(Status::path_not_found()),
        }
    }

    /// The segments of the path in a version of the group.
    pub fn segments(&self, version: &'a str) -> Vec<&'a str> {
        let mut segments = vec!["apis", CUSTOM_METRICS, version];
        match (self.resource, self.namespace) {
            (NAMESPACES, _) => segments.extend([NAMESPACES, self.name, "metrics"]),
            (resource, "") => segments.extend([resource, self.name]),
            (resource, namespace) => {
                segments.extend([NAMESPACES, namespace, resource, self.name]);
            }
        }
        segments.push(self.metric);
        segments
    }

    /// The 404 of a metric that no object has.
    pub fn not_found(&self) -> Status {
        let Self {
            metric, resource, ..
        } = self;
        let text = format!("the server could not find the metric {metric} for {resource}");
        Status::failure(404, "NotFound", text)
    }
}

/// The selectors of a request for custom metrics, which are valid.
pub struct CustomMetricSelectors<'a> {
    /// Selects objects by their labels; empty for a named object, which is returned whatever its
    /// labels are.
    pub objects: &'a str,
    /// Selects series of the metric.
    pub series: &'a str,
}

impl<'a> CustomMetricSelectors<'a> {
    pub fn parse(
        request: &DynamicResourceRequest<'a>,
        path: &CustomMetricPath<'_>,
    ) -> Result<Self, Status> {
        let objects = label_selector(request, "labelSelector")?;
        let fields = FieldSelector::parse(request.param("fieldSelector"));
        let fields = fields.map_err(Status::bad_request)?;
        if !fields.is_everything() && fields.exact_match("metadata.name") != Some(path.name) {
            let text = "fieldSelector metadata.name doesn't match requested name";
            return Err(Status::bad_request(text));
        }
        Ok(Self {
            objects: if path.name == ALL_OBJECTS {
                objects
            } else {
                ""
            },
            series: label_selector(request, "metricLabelSelector")?,
        })
    }
}

/// A parameter that is a label selector.
fn label_selector<'a>(
    request: &DynamicResourceRequest<'a>,
    parameter: &str,
) -> Result<&'a str, Status> {
    let selector = request.param(parameter);
    LabelSelector::parse(selector).map_err(Status::bad_request)?;
    Ok(selector)
}

/// The value of a custom metric, read from either version.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomMetricValue {
    pub described_object: Map<String, Value>,
    #[serde(default)]
    pub metric: CustomMetricIdentifier,
    pub timestamp: Option<Timestamp>,
    pub window_seconds: Option<i64>,
    pub value: Quantity,
    #[serde(flatten)]
    v1beta1: V1beta1Fields,
}

/// The fields of v1beta1 in place of `metric` and `windowSeconds`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct V1beta1Fields {
    metric_name: String,
    selector: Value,
    window: Option<i64>,
}

/// The name of a metric, and the selector of its series.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CustomMetricIdentifier {
    pub name: String,
    pub selector: Value,
}

#[derive(Deserialize)]
struct CustomMetricValueList {
    #[serde(default)]
    items: Option<Vec<CustomMetricValue>>,
}

impl CustomMetricValue {
    /// The values of a list of either version.
    pub fn parse_list(body: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        let list: CustomMetricValueList = machinery::json::from_slice(body)?;
        let mut values = list.items.unwrap_or_default();
        for value in &mut values {
            let fields = std::mem::take(&mut value.v1beta1);
            if value.metric.name.is_empty() {
                value.metric = CustomMetricIdentifier {
                    name: fields.metric_name,
                    selector: fields.selector,
                };
            }
            value.window_seconds = value.window_seconds.or(fields.window);
        }
        Ok(values)
    }

    /// A value that was measured now.
    pub fn measured(
        described_object: Map<String, Value>,
        metric: &str,
        value: Quantity,
        now: Timestamp,
    ) -> Self {
        Self {
            described_object,
            metric: CustomMetricIdentifier {
                name: metric.to_owned(),
                selector: Value::Null,
            },
            timestamp: Some(now),
            window_seconds: None,
            value,
            v1beta1: V1beta1Fields::default(),
        }
    }

    /// Namespace and name of the object.
    pub fn object_key(&self) -> (String, String) {
        let text = |field: &str| self.described_object.get(field).and_then(Value::as_str);
        let text = |field: &str| text(field).unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    }

    /// The form of a version of the group.
    fn to_value(&self, version: &str) -> Value {
        let mut item = json!({
            "describedObject": self.described_object,
            "timestamp": self.timestamp.map(rfc3339_seconds),
            "value": self.value,
        });
        let CustomMetricIdentifier { name, selector } = &self.metric;
        if version == "v1beta1" {
            item["metricName"] = name.as_str().into();
            item["selector"] = selector.clone();
        } else {
            item["metric"] = json!({"name": name, "selector": selector});
        }
        if let Some(seconds) = self.window_seconds {
            let field = match version {
                "v1beta1" => "window",
                _ => "windowSeconds",
            };
            item[field] = seconds.into();
        }
        item
    }

    /// A `MetricValueList` of a version of the group.
    pub fn to_list(version: &str, values: &[Self]) -> Value {
        let items: Vec<Value> = values.iter().map(|value| value.to_value(version)).collect();
        let api_version = format!("{CUSTOM_METRICS}/{version}");
        json!({"kind": "MetricValueList", "apiVersion": api_version, "metadata": {}, "items": items})
    }
}

/// An external metric of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalMetricPath<'a> {
    pub namespace: &'a str,
    pub metric: &'a str,
    /// A valid selector of series.
    pub series: &'a str,
}

impl<'a> ExternalMetricPath<'a> {
    pub fn parse(request: &DynamicResourceRequest<'a>) -> Result<Self, Status> {
        match (request.namespace, request.name) {
            ("", _) | (_, Some(_)) => Err(Status::path_not_found()),
            (namespace, None) => Ok(Self {
                namespace,
                metric: request.resource,
                series: label_selector(request, "labelSelector")?,
            }),
        }
    }

    pub fn segments(&self) -> [&'a str; 6] {
        let (group, version) = (EXTERNAL_METRICS, EXTERNAL_METRICS_VERSION);
        [
            "apis",
            group,
            version,
            NAMESPACES,
            self.namespace,
            self.metric,
        ]
    }

    /// The 404 of a metric that does not exist.
    pub fn not_found(&self) -> Status {
        let text = format!(
            "the server could not find the external metric {}",
            self.metric
        );
        Status::failure(404, "NotFound", text)
    }
}

/// An `ExternalMetricValueList`.
pub fn external_metric_list(items: Vec<Value>) -> Value {
    let api_version = format!("{EXTERNAL_METRICS}/{EXTERNAL_METRICS_VERSION}");
    json!({"kind": "ExternalMetricValueList", "apiVersion": api_version, "metadata": {}, "items": items})
}
