//! Validates HorizontalPodAutoscaler; FederatedHPA shares the parts.

use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::autoscaling_metrics::{MetricRules, validate_metrics};
use super::references::{ApiVersionRule, validate_object_reference};
use crate::unstructured::{get, has, index_path, int, items, text};

pub(super) fn validate(hpa: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = get(hpa, "/spec");
    // An autoscaler that may scale to zero replicas stays valid.
    let scaled_to_zero = old.is_some_and(|old| int(old, "/spec/minReplicas") == Some(0));
    validate_replica_bounds(spec, i64::from(!scaled_to_zero), errors);
    let target = get(spec, "/scaleTargetRef");
    let rule = target_version_rule(target, old);
    validate_object_reference("spec.scaleTargetRef", target, rule, errors);
    validate_metrics(spec, MetricRules::for_update(old), errors);
    validate_behavior(get(spec, "/behavior"), errors);
}

/// Requires `lowest` ≤ minReplicas ≤ maxReplicas, and maxReplicas ≥ 1.
pub(crate) fn validate_replica_bounds(spec: &Value, lowest: i64, errors: &mut Vec<FieldError>) {
    let min = int(spec, "/minReplicas");
    if let Some(min) = min
        && min < lowest
    {
        errors.push(FieldError::invalid(
            "spec.minReplicas",
            &min.into(),
            format!("must be greater than or equal to {lowest}"),
        ));
    }
    let max = int(spec, "/maxReplicas").unwrap_or(0);
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid("spec.maxReplicas", &max.into(), detail));
    };
    if max < 1 {
        refuse("must be greater than 0");
    }
    if min.is_some_and(|min| max < min) {
        refuse("must be greater than or equal to `minReplicas`");
    }
}

/// Requires kind and name of the scale target.
pub(crate) fn validate_scale_target(spec: &Value, errors: &mut Vec<FieldError>) {
    let target = get(spec, "/scaleTargetRef");
    validate_object_reference("spec.scaleTargetRef", target, ApiVersionRule::Any, errors);
}

/// The rule for a scale target, which an update may leave as it is.
fn target_version_rule(target: &Value, old: Option<&Value>) -> ApiVersionRule {
    let is_same = |old: &Value| {
        let old = get(old, "/spec/scaleTargetRef");
        ["/apiVersion", "/kind"]
            .iter()
            .all(|part| text(old, part) == text(target, part))
    };
    match old {
        Some(old) if is_same(old) => ApiVersionRule::Any,
        _ if text(target, "/kind") == "ReplicationController" => ApiVersionRule::GroupOptional,
        _ => ApiVersionRule::Group,
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
            let detail = if window < 0 {
                "must be greater than or equal to zero"
            } else {
                "must be less than or equal to 3600"
            };
            let field = format!("{field}.stabilizationWindowSeconds");
            errors.push(FieldError::invalid(field, &window.into(), detail));
        }
        let select = text(rules, "/selectPolicy");
        if has(rules, "/selectPolicy") && !matches!(select, "Max" | "Min" | "Disabled") {
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
        let tolerance = get(rules, "/tolerance");
        if Quantity::from_value(tolerance).is_ok_and(|amount| amount < Quantity::ZERO) {
            errors.push(FieldError::invalid(
                format!("{field}.tolerance"),
                tolerance,
                "must be greater than or equal to 0",
            ));
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
        let detail = if period < 1 {
            "must be greater than zero"
        } else {
            "must be less than or equal to 1800"
        };
        errors.push(FieldError::invalid(
            format!("{field}.periodSeconds"),
            &period.into(),
            detail,
        ));
    }
}
