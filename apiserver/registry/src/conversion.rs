//! Converts objects between the storage version of a kind and its other served versions
//! (contract F1.4).
//!
//! Sources: `pkg/apis/autoscaling/v1/conversion.go`, `pkg/apis/core/v1/conversion.go`,
//! Karmada's `pkg/apis/work/v1alpha1/binding_types_conversion.go`.

use machinery::Gvk;
use serde_json::{Map, Value, json};

/// How a version differs from the storage version of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionConversion {
    /// The version is the storage version. Versions of a custom resource count as such, since their
    /// own store converts them.
    Stored,
    /// Only `apiVersion` and `kind` differ.
    ApiVersionOnly,
    /// autoscaling/v1; stored as autoscaling/v2.
    Autoscaler,
    /// events.k8s.io/v1; stored as a core event.
    Event,
    /// work.karmada.io/v1alpha1; stored as v1alpha2.
    Binding,
}

impl VersionConversion {
    /// The conversion of a built-in kind; `stored` is the kind in the storage version of the
    /// same prefix.
    pub(crate) fn for_built_in(kind: &Gvk, stored: &Gvk) -> Self {
        if kind == stored {
            return Self::Stored;
        }
        match (&*kind.group, &*kind.version) {
            ("autoscaling", "v1") => Self::Autoscaler,
            ("events.k8s.io", _) => Self::Event,
            ("work.karmada.io", "v1alpha1") => Self::Binding,
            _ => Self::ApiVersionOnly,
        }
    }

    /// Converts from the storage version to this one.
    pub(crate) fn convert_from_storage(self, kind: &Gvk, value: &mut Value) {
        match self {
            Self::Stored => return,
            Self::ApiVersionOnly => {}
            Self::Autoscaler => autoscaler_to_v1(value),
            Self::Event => event_to_events_v1(value),
            Self::Binding => binding_to_v1alpha1(value),
        }
        set_gvk(kind, value);
    }

    /// Converts from this version to the storage version.
    pub(crate) fn convert_to_storage(self, stored: &Gvk, value: &mut Value) {
        match self {
            Self::Stored => return,
            Self::ApiVersionOnly => {}
            Self::Autoscaler => autoscaler_to_v2(value),
            Self::Event => event_to_core(value),
            Self::Binding => binding_to_v1alpha2(value),
        }
        set_gvk(stored, value);
    }
}

fn set_gvk(kind: &Gvk, value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), kind.api_version().into());
        map.insert("kind".into(), kind.kind.as_ref().into());
    }
}

fn object_field<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    value.get_mut(field)?.as_object_mut()
}

/// Renames fields that are present.
fn rename_fields(map: &mut Map<String, Value>, pairs: &[(&str, &str)]) {
    for (from, to) in pairs {
        if let Some(v) = map.remove(*from) {
            map.insert((*to).to_owned(), v);
        }
    }
}

// ---- events ----

const EVENT_FIELDS: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn event_to_events_v1(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        rename_fields(map, &EVENT_FIELDS);
        rename_fields(map, &[("reportingComponent", "reportingController")]);
    }
}

fn event_to_core(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        let reversed = EVENT_FIELDS.map(|(core, new)| (new, core));
        rename_fields(map, &reversed);
        rename_fields(map, &[("reportingController", "reportingComponent")]);
    }
}

// ---- horizontal pod autoscalers ----

const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["type"] == "Utilization"
}

fn set_annotation(value: &mut Value, key: &str, content: &Value) {
    value["metadata"]["annotations"][key] = content.to_string().into();
}

/// Removes and parses an annotation; an empty annotation map is removed too.
fn remove_annotation(value: &mut Value, key: &str) -> Option<Value> {
    let metadata = object_field(value, "metadata")?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(key)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    machinery::json::from_str(text.as_str()?).ok()
}

fn autoscaler_to_v1(value: &mut Value) {
    let mut annotations = Vec::new();
    if let Some(spec) = object_field(value, "spec") {
        let mut other_metrics = Vec::new();
        if let Some(Value::Array(metrics)) = spec.remove("metrics") {
            for metric in metrics {
                if is_cpu_utilization(&metric)
                    && !spec.contains_key("targetCPUUtilizationPercentage")
                {
                    let target = metric["resource"]["target"]["averageUtilization"].clone();
                    spec.insert("targetCPUUtilizationPercentage".into(), target);
                } else {
                    other_metrics.push(metric);
                }
            }
        }
        if !other_metrics.is_empty() {
            annotations.push((METRICS_ANNOTATION, Value::Array(other_metrics)));
        }
        if let Some(behavior) = spec.remove("behavior") {
            annotations.push((BEHAVIOR_ANNOTATION, behavior));
        }
    }
    if let Some(status) = object_field(value, "status") {
        if let Some(conditions) = status.remove("conditions") {
            annotations.push((CONDITIONS_ANNOTATION, conditions));
        }
        let mut other_metrics = Vec::new();
        if let Some(Value::Array(current)) = status.remove("currentMetrics") {
            for metric in current {
                let now = &metric["resource"]["current"]["averageUtilization"];
                if metric["resource"]["name"] == "cpu" && !now.is_null() {
                    status.insert("currentCPUUtilizationPercentage".into(), now.clone());
                } else {
                    other_metrics.push(metric);
                }
            }
        }
        if !other_metrics.is_empty() {
            annotations.push((CURRENT_METRICS_ANNOTATION, Value::Array(other_metrics)));
        }
    }
    for (key, content) in annotations {
        set_annotation(value, key, &content);
    }
}

fn cpu_metric(target: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
           "target": {"type": "Utilization", "averageUtilization": target}}})
}

fn autoscaler_to_v2(value: &mut Value) {
    let mut metrics = match remove_annotation(value, METRICS_ANNOTATION) {
        Some(Value::Array(metrics)) => metrics,
        _ => Vec::new(),
    };
    let behavior = remove_annotation(value, BEHAVIOR_ANNOTATION);
    let conditions = remove_annotation(value, CONDITIONS_ANNOTATION);
    let mut current = match remove_annotation(value, CURRENT_METRICS_ANNOTATION) {
        Some(Value::Array(current)) => current,
        _ => Vec::new(),
    };
    if let Some(spec) = object_field(value, "spec") {
        if let Some(target) = spec.remove("targetCPUUtilizationPercentage") {
            metrics.insert(0, cpu_metric(&target));
        }
        if !metrics.is_empty() {
            spec.insert("metrics".into(), Value::Array(metrics));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = object_field(value, "status") {
        if let Some(now) = status.remove("currentCPUUtilizationPercentage") {
            current.insert(
                0,
                json!({"type": "Resource", "resource":
                {"name": "cpu", "current": {"averageUtilization": now}}}),
            );
        }
        if !current.is_empty() {
            status.insert("currentMetrics".into(), Value::Array(current));
        }
        if let Some(conditions) = conditions {
            status.insert("conditions".into(), conditions);
        }
    }
}

// ---- bindings ----

const BINDING_RESOURCE_FIELDS: [&str; 5] =
    ["apiVersion", "kind", "namespace", "name", "resourceVersion"];

fn binding_to_v1alpha1(value: &mut Value) {
    if let Some(spec) = object_field(value, "spec") {
        let mut resource = Map::new();
        for field in BINDING_RESOURCE_FIELDS {
            if let Some(v) = spec.get("resource").and_then(|r| r.get(field)) {
                resource.insert(field.into(), v.clone());
            }
        }
        if let Some(v) = spec
            .get("replicaRequirements")
            .and_then(|r| r.get("resourceRequest"))
        {
            resource.insert("resourcePerReplicas".into(), v.clone());
        }
        if let Some(v) = spec.get("replicas") {
            resource.insert("replicas".into(), v.clone());
        }
        let clusters = spec.remove("clusters");
        spec.clear();
        spec.insert("resource".into(), Value::Object(resource));
        if let Some(clusters) = clusters {
            spec.insert("clusters".into(), clusters);
        }
    }
    if let Some(status) = object_field(value, "status") {
        for item in status
            .get_mut("aggregatedStatus")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(item) = item.as_object_mut() {
                item.remove("health");
            }
        }
        status.retain(|k, _| k == "conditions" || k == "aggregatedStatus");
    }
}

fn binding_to_v1alpha2(value: &mut Value) {
    let Some(spec) = object_field(value, "spec") else {
        return;
    };
    let (mut request, mut replicas) = (None, None);
    if let Some(resource) = spec.get_mut("resource").and_then(Value::as_object_mut) {
        request = resource.remove("resourcePerReplicas");
        replicas = resource.remove("replicas");
    }
    if let Some(request) = request {
        spec.insert(
            "replicaRequirements".into(),
            json!({"resourceRequest": request}),
        );
    }
    if let Some(replicas) = replicas {
        spec.insert("replicas".into(), replicas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the conversion of `stored` to `version`, and back if it is lossless.
    fn check(
        view: VersionConversion,
        stored: Value,
        version: &Gvk,
        expected: Value,
        lossless: bool,
    ) {
        let back_to = Gvk::from_api_version(
            stored["apiVersion"].as_str().unwrap(),
            stored["kind"].as_str().unwrap(),
        );
        let mut value = stored.clone();
        view.convert_from_storage(version, &mut value);
        assert_eq!(value, expected);
        view.convert_to_storage(&back_to, &mut value);
        if lossless {
            assert_eq!(value, stored);
        }
    }

    #[test]
    fn objects_convert_between_versions() {
        check(
            VersionConversion::Event,
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {}, "involvedObject": {"name": "a"},
                   "message": "m", "count": 2, "reportingComponent": "c"}),
            &Gvk::from_static("events.k8s.io", "v1", "Event"),
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}, "regarding": {"name": "a"},
                   "note": "m", "deprecatedCount": 2, "reportingController": "c"}),
            true,
        );
        let memory = json!([{"type": "Resource", "resource": {"name": "memory"}}]);
        check(
            VersionConversion::Autoscaler,
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {},
                   "spec": {"maxReplicas": 3, "metrics": [cpu_metric(&json!(50)), memory[0]]}}),
            &Gvk::from_static("autoscaling", "v1", "HorizontalPodAutoscaler"),
            json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
                   "metadata": {"annotations": {METRICS_ANNOTATION: memory.to_string()}},
                   "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}),
            true,
        );
        check(
            VersionConversion::Binding,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {},
                   "spec": {"resource": {"apiVersion": "v1", "kind": "X", "name": "a", "uid": "u"}, "replicas": 2,
                            "placement": {}, "clusters": [{"name": "m"}]},
                   "status": {"schedulerObservedGeneration": 1, "aggregatedStatus": [{"clusterName": "m", "health": "Healthy"}]}}),
            &Gvk::from_static("work.karmada.io", "v1alpha1", "ResourceBinding"),
            json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "ResourceBinding", "metadata": {},
                   "spec": {"resource": {"apiVersion": "v1", "kind": "X", "name": "a", "replicas": 2}, "clusters": [{"name": "m"}]},
                   "status": {"aggregatedStatus": [{"clusterName": "m"}]}}),
            false,
        );
    }
}
