//! Validates the metrics of HorizontalPodAutoscalers and FederatedHPAs, and what they aim at.

use machinery::names::{validate_dns1123_label, validate_path_segment_name};
use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::references::{ApiVersionRule, validate_object_reference};
use crate::resource_list::{ResourceListKind, validate_resource_name};
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text};

/// The types of metrics, with the field of each, in the order in which errors list them.
const METRIC_TYPES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
/// The fields in the order in which they are read: only the first one is validated.
const SOURCES: [&str; 5] = [
    "object",
    "external",
    "pods",
    "resource",
    "containerResource",
];

/// Which metrics an autoscaler may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricRules {
    /// Whether metrics may come from outside of the cluster.
    pub(crate) allows_external: bool,
    pub(super) described_object: ApiVersionRule,
}

impl MetricRules {
    /// The rules of a FederatedHPA.
    pub(crate) const FEDERATED: Self = Self {
        allows_external: false,
        described_object: ApiVersionRule::Any,
    };

    /// The rules of an update of a HorizontalPodAutoscaler, or of a new one.
    pub(super) fn for_update(old: Option<&Value>) -> Self {
        let old = old.map_or(&[][..], |old| items(old, "/spec/metrics"));
        let mut objects = old
            .iter()
            .filter(|metric| text(metric, "/type") == "Object");
        let rule = ApiVersionRule::GroupOptional;
        let is_invalid = |metric: &Value| {
            let object = get(metric, "/object/describedObject");
            !object.is_null() && rule.error(object).is_some()
        };
        Self {
            allows_external: true,
            described_object: match objects.any(is_invalid) {
                true => ApiVersionRule::Any,
                false => rule,
            },
        }
    }
}

/// Requires each metric to have an allowed type, only the source of that type, and a
/// target in it.
pub(crate) fn validate_metrics(spec: &Value, rules: MetricRules, errors: &mut Vec<FieldError>) {
    let metrics = items(spec, "/metrics");
    for (i, metric) in metrics.iter().enumerate() {
        validate_metric(&index_path("spec.metrics", i), metric, rules, errors);
    }
    let wakes = |metric: &Value| matches!(text(metric, "/type"), "Object" | "External");
    if int(spec, "/minReplicas") == Some(0) && !metrics.iter().any(wakes) {
        errors.push(FieldError::forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        ));
    }
}

fn validate_metric(field: &str, metric: &Value, rules: MetricRules, errors: &mut Vec<FieldError>) {
    let allowed = |source: &str| rules.allows_external || source != "external";
    let kind = text(metric, "/type");
    let path = format!("{field}.type");
    let allowed_types = METRIC_TYPES.iter().filter(|(_, source)| allowed(source));
    let own_source = allowed_types
        .clone()
        .find(|(allowed_types, _)| *allowed_types == kind);
    let own_source = own_source.map(|(_, source)| *source);
    if kind.is_empty() {
        errors.push(FieldError::required(
            &path,
            "must specify a metric source type",
        ));
    }
    if own_source.is_none() {
        let types: Vec<&str> = allowed_types
            .map(|(allowed_types, _)| *allowed_types)
            .collect();
        errors.push(FieldError::not_supported(&path, &kind.into(), &types));
    }
    let is_present = |source: &&&str| allowed(source) && has(metric, &format!("/{source}"));
    let present: Vec<&str> = SOURCES.iter().filter(is_present).copied().collect();
    if let Some(first) = present.first() {
        let source = get(metric, &format!("/{first}"));
        validate_source(&format!("{field}.{first}"), first, source, rules, errors);
    }
    if let Some(own_source) = own_source.filter(|own_source| !present.contains(own_source)) {
        errors.push(FieldError::required(
            format!("{field}.{own_source}"),
            "must populate information for the given metric source",
        ));
    }
    if present.len() == 1 {
        return;
    }
    for other in present
        .into_iter()
        .filter(|source| Some(*source) != own_source)
    {
        errors.push(FieldError::forbidden(
            format!("{field}.{other}"),
            "must populate the given metric source only",
        ));
    }
}

fn validate_source(
    field: &str,
    kind: &str,
    source: &Value,
    rules: MetricRules,
    errors: &mut Vec<FieldError>,
) {
    match kind {
        "object" => {
            let object = get(source, "/describedObject");
            let path = format!("{field}.describedObject");
            validate_object_reference(&path, object, rules.described_object, errors);
            validate_identifier(&format!("{field}.metric"), get(source, "/metric"), errors);
        }
        "external" | "pods" => {
            validate_identifier(&format!("{field}.metric"), get(source, "/metric"), errors);
        }
        _ => validate_resource(field, kind, source, errors),
    }
    let target = get(source, "/target");
    let field = format!("{field}.target");
    validate_target(&field, target, errors);
    validate_target_of(&field, kind, target, errors);
}

fn validate_identifier(field: &str, metric: &Value, errors: &mut Vec<FieldError>) {
    let name = text(metric, "/name");
    let path = format!("{field}.name");
    if name.is_empty() {
        errors.push(FieldError::required(path, "must specify a metric name"));
    } else {
        report_invalid(path, name, validate_path_segment_name(name), errors);
    }
}

fn validate_resource(field: &str, kind: &str, source: &Value, errors: &mut Vec<FieldError>) {
    let name = text(source, "/name");
    let path = format!("{field}.name");
    let of_container = kind == "containerResource";
    if name.is_empty() {
        errors.push(FieldError::required(path, "must specify a resource name"));
    } else if of_container {
        let result = validate_resource_name(ResourceListKind::Container, name);
        report_invalid(path, name, result, errors);
    }
    if !of_container {
        return;
    }
    let container = text(source, "/container");
    let path = format!("{field}.container");
    if container.is_empty() {
        errors.push(FieldError::required(path, "must specify a container"));
    } else {
        report_invalid(path, container, validate_dns1123_label(container), errors);
    }
}

fn validate_target(field: &str, target: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(target, "/type");
    let path = format!("{field}.type");
    if kind.is_empty() {
        errors.push(FieldError::required(
            &path,
            "must specify a metric target type",
        ));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(path, &kind.into(), detail));
    }
    for name in ["value", "averageValue"] {
        let amount = get(target, &format!("/{name}"));
        if Quantity::from_value(amount).is_ok_and(|amount| amount <= Quantity::ZERO) {
            errors.push(FieldError::invalid(
                format!("{field}.{name}"),
                amount,
                "must be positive",
            ));
        }
    }
    if let Some(percent) = int(target, "/averageUtilization")
        && percent < 1
    {
        errors.push(FieldError::invalid(
            format!("{field}.averageUtilization"),
            &percent.into(),
            "must be greater than 0",
        ));
    }
}

/// Requires what a source of this kind can aim at.
fn validate_target_of(field: &str, kind: &str, target: &Value, errors: &mut Vec<FieldError>) {
    let has = |name: &str| has(target, &format!("/{name}"));
    let average = format!("{field}.averageValue");
    let has_value = has("value") || has("averageValue");
    let error = match kind {
        "object" if !has_value => {
            FieldError::required(average, "must set either a target value or averageValue")
        }
        "external" if !has_value => FieldError::required(
            average,
            "must set either a target value for metric or a per-pod target",
        ),
        "external" if has("value") && has("averageValue") => FieldError::forbidden(
            format!("{field}.value"),
            "may not set both a target value for metric and a per-pod target",
        ),
        "pods" if !has("averageValue") => {
            FieldError::required(average, "must specify a positive target averageValue")
        }
        "resource" | "containerResource" => {
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => FieldError::required(
                    format!("{field}.averageUtilization"),
                    "must set either a target raw value or a target utilization",
                ),
                (true, true) => FieldError::forbidden(
                    average,
                    "may not set both a target raw value and a target utilization",
                ),
                _ => return,
            }
        }
        _ => return,
    };
    errors.push(error);
}
