//! Validates HorizontalPodAutoscaler; FederatedHPA shares the parts.

use machinery::FieldError;
use machinery::names::{split_api_version, validate_path_segment_name};
use serde_json::Value;

use crate::unstructured::{get, has, index_path, int, items, report_invalid, text};

pub(super) fn validate(
    version: &str,
    hpa: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(hpa, "/spec");
    validate_replica_bounds(spec, errors);
    validate_scale_target(spec, errors);
    let target = get(spec, "/scaleTargetRef");
    let old_target = old.map(|old| get(old, "/spec/scaleTargetRef"));
    if let Some(why) = api_version_error(target)
        && old_target.is_none_or(|old| api_version_error(old).is_none())
    {
        errors.push(FieldError::invalid(
            "spec.scaleTargetRef.apiVersion",
            &text(target, "/apiVersion").into(),
            why,
        ));
    }
    if version == "v1" {
        if let Some(target) = int(spec, "/targetCPUUtilizationPercentage")
            && target < 1
        {
            errors.push(FieldError::invalid(
                "spec.targetCPUUtilizationPercentage",
                &target.into(),
                "must be greater than 0",
            ));
        }
        return;
    }
    validate_metrics(
        &[
            "Object",
            "Pods",
            "Resource",
            "ContainerResource",
            "External",
        ],
        items(spec, "/metrics"),
        errors,
    );
    validate_behavior(get(spec, "/behavior"), errors);
}

/// Requires 1 ≤ minReplicas ≤ maxReplicas.
pub(crate) fn validate_replica_bounds(spec: &Value, errors: &mut Vec<FieldError>) {
    let min = int(spec, "/minReplicas");
    if let Some(min) = min
        && min < 1
    {
        errors.push(FieldError::invalid(
            "spec.minReplicas",
            &min.into(),
            "must be greater than or equal to 1",
        ));
    }
    let max = int(spec, "/maxReplicas").unwrap_or(0);
    let why = if max < 1 {
        "must be greater than 0"
    } else if min.is_some_and(|min| max < min) {
        "must be greater than or equal to `minReplicas`"
    } else {
        return;
    };
    errors.push(FieldError::invalid("spec.maxReplicas", &max.into(), why));
}

/// Requires kind and name of the scale target.
pub(crate) fn validate_scale_target(spec: &Value, errors: &mut Vec<FieldError>) {
    for part in ["kind", "name"] {
        let field = format!("spec.scaleTargetRef.{part}");
        let value = text(spec, &format!("/scaleTargetRef/{part}"));
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else {
            report_invalid(field, value, validate_path_segment_name(value), errors);
        }
    }
}

/// Why the version in a reference to a scale target is invalid. It names a group:
/// ReplicationController is the only kind without one that can be scaled.
fn api_version_error(target: &Value) -> Option<String> {
    let api_version = text(target, "/apiVersion");
    if api_version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {api_version}"));
    }
    let has_group = !split_api_version(api_version).0.is_empty();
    (!has_group && text(target, "/kind") != "ReplicationController")
        .then(|| "apiVersion must specify API group".to_owned())
}

/// Requires each metric to have an allowed type, only the source of that type, and a
/// target in it.
pub(crate) fn validate_metrics(allowed: &[&str], metrics: &[Value], errors: &mut Vec<FieldError>) {
    for (i, metric) in metrics.iter().enumerate() {
        let field = index_path("spec.metrics", i);
        let kind = text(metric, "/type");
        let source = match kind {
            "Object" => "object",
            "Pods" => "pods",
            "Resource" => "resource",
            "ContainerResource" => "containerResource",
            "External" => "external",
            _ => "",
        };
        if source.is_empty() || !allowed.contains(&kind) {
            errors.push(FieldError::not_supported(
                format!("{field}.type"),
                &kind.into(),
                allowed,
            ));
            continue;
        }
        let sources = [
            "object",
            "pods",
            "resource",
            "containerResource",
            "external",
        ];
        for other in sources {
            if other != source && has(metric, &format!("/{other}")) {
                errors.push(FieldError::forbidden(
                    format!("{field}.{other}"),
                    "must populate the given metric source only",
                ));
            }
        }
        let fields = get(metric, &format!("/{source}"));
        if fields.is_null() {
            errors.push(FieldError::required(
                format!("{field}.{source}"),
                "must populate information for the given metric source",
            ));
            continue;
        }
        let named = !matches!(source, "resource" | "containerResource");
        let name = if named { "/metric/name" } else { "/name" };
        if text(fields, name).is_empty() {
            let name = name.replace('/', ".");
            errors.push(FieldError::required(format!("{field}.{source}{name}"), ""));
        }
        validate_metric_target(
            &format!("{field}.{source}.target"),
            get(fields, "/target"),
            errors,
        );
    }
}

fn validate_metric_target(field: &str, target: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(target, "/type");
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.push(FieldError::not_supported(
            format!("{field}.type"),
            &kind.into(),
            &["Utilization", "Value", "AverageValue"],
        ));
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
    let value_field = match kind {
        "Utilization" => "averageUtilization",
        "Value" => "value",
        "AverageValue" => "averageValue",
        _ => return,
    };
    if !has(target, &format!("/{value_field}")) {
        errors.push(FieldError::required(
            format!("{field}.{value_field}"),
            &format!("must specify {value_field} for a target of type {kind}"),
        ));
    }
}

/// Requires windows of 0–3600 s and at least one policy, each with a period of 1–1800
/// s.
pub(crate) fn validate_behavior(behavior: &Value, errors: &mut Vec<FieldError>) {
    for side in ["scaleUp", "scaleDown"] {
        let rules = get(behavior, &format!("/{side}"));
        if rules.is_null() {
            continue;
        }
        let field = format!("spec.behavior.{side}");
        if let Some(window) = int(rules, "/stabilizationWindowSeconds")
            && !(0..=3600).contains(&window)
        {
            let why = if window < 0 {
                "must be greater than or equal to zero"
            } else {
                "must be less than or equal to 3600"
            };
            let field = format!("{field}.stabilizationWindowSeconds");
            errors.push(FieldError::invalid(field, &window.into(), why));
        }
        let select = text(rules, "/selectPolicy");
        if !matches!(select, "" | "Max" | "Min" | "Disabled") {
            errors.push(FieldError::not_supported(
                format!("{field}.selectPolicy"),
                &select.into(),
                &["Disabled", "Max", "Min"],
            ));
        }
        let policies = items(rules, "/policies");
        if policies.is_empty() {
            errors.push(FieldError::required(
                format!("{field}.policies"),
                "must specify at least one Policy",
            ));
        }
        for (i, policy) in policies.iter().enumerate() {
            validate_scaling_policy(&index_path(&format!("{field}.policies"), i), policy, errors);
        }
    }
}

fn validate_scaling_policy(field: &str, policy: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(policy, "/type");
    if !matches!(kind, "Pods" | "Percent") {
        errors.push(FieldError::not_supported(
            format!("{field}.type"),
            &kind.into(),
            &["Percent", "Pods"],
        ));
    }
    let value = int(policy, "/value").unwrap_or(0);
    if value <= 0 {
        errors.push(FieldError::invalid(
            format!("{field}.value"),
            &value.into(),
            "must be greater than zero",
        ));
    }
    let period = int(policy, "/periodSeconds").unwrap_or(0);
    if !(1..=1800).contains(&period) {
        let why = if period < 1 {
            "must be greater than zero"
        } else {
            "must be less than or equal to 1800"
        };
        errors.push(FieldError::invalid(
            format!("{field}.periodSeconds"),
            &period.into(),
            why,
        ));
    }
}
