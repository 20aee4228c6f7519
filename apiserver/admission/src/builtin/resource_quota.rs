//! Validates ResourceQuota and LimitRange.

use std::collections::{BTreeSet, HashSet};

use machinery::names::validate_qualified_name;
use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::container_resources::is_exclusive;
use crate::resource_list::{
    ResourceListKind, is_quota_resource, report_name_faults, resource_quantity,
    validate_resource_list,
};
use crate::unstructured::{entries, get, has, index_path, items, text, texts};

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
/// Scopes that no object has both of.
const CONFLICTING_SCOPES: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];
const LIMIT_TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];
const POD_AMOUNTS: [&str; 7] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.memory",
];
const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

pub(super) fn validate_resource_quota(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    for (path, field) in [
        ("/spec/hard", "spec.hard"),
        ("/status/hard", "status.hard"),
        ("/status/used", "status.used"),
    ] {
        validate_resource_list(ResourceListKind::Quota, field, get(new, path), errors);
    }
    let spec = get(new, "/spec");
    validate_scopes(spec, errors);
    validate_scope_selector(spec, errors);
    let scopes = |quota| texts(quota, "/spec/scopes").collect::<BTreeSet<&str>>();
    if old.is_some_and(|old| scopes(old) != scopes(new)) {
        let value = get(spec, "/scopes");
        errors.push(FieldError::invalid(
            "spec.scopes",
            value,
            "field is immutable",
        ));
    }
}

/// Whether objects of a scope use a resource; other resources than Kubernetes' own always do.
fn is_of_scope(scope: &str, resource: &str) -> bool {
    match scope {
        _ if resource.contains('/') || !is_quota_resource(resource) => true,
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        scope if SCOPES.contains(&scope) => POD_AMOUNTS.contains(&resource),
        _ => true,
    }
}

fn validate_scopes(spec: &Value, errors: &mut Vec<FieldError>) {
    let (field, value) = ("spec.scopes", get(spec, "/scopes"));
    let scopes: Vec<&str> = texts(spec, "/scopes").collect();
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, value, detail));
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            refuse("unsupported scope");
        }
        for _ in entries(spec, "/hard").filter(|(name, _)| !is_of_scope(scope, name)) {
            refuse("unsupported scope applied to resource");
        }
    }
    for pair in CONFLICTING_SCOPES {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            refuse("conflicting scopes");
        }
    }
}

fn validate_scope_selector(spec: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.scopeSelector.matchExpressions";
    let expressions = items(spec, "/scopeSelector/matchExpressions");
    for expression in expressions {
        let scope = text(expression, "/scopeName");
        if !SCOPES.contains(&scope) {
            let path = format!("{field}.scopeName");
            errors.push(FieldError::invalid(
                path,
                &scope.into(),
                "unsupported scope",
            ));
        }
        for _ in entries(spec, "/hard").filter(|(name, _)| !is_of_scope(scope, name)) {
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(
                field,
                get(spec, "/scopeSelector"),
                detail,
            ));
        }
        validate_scope_operator(field, scope, expression, errors);
    }
    for pair in CONFLICTING_SCOPES {
        let has_scope = |scope: &&str| expressions.iter().any(|e| text(e, "/scopeName") == *scope);
        if pair.iter().all(has_scope) {
            let value = get(spec, "/scopes");
            errors.push(FieldError::invalid(field, value, "conflicting scopes"));
        }
    }
}

fn validate_scope_operator(
    field: &str,
    scope: &str,
    expression: &Value,
    errors: &mut Vec<FieldError>,
) {
    let operator = text(expression, "/operator");
    let path = format!("{field}.operator");
    let takes_values = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
    if SCOPES.contains(&scope) && !takes_values && operator != "Exists" {
        errors.push(FieldError::invalid(&path, &operator.into(), EXISTS_ONLY));
    }
    let values = items(expression, "/values");
    let at_values = format!("{field}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            at_values,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid(
            at_values,
            &values.into(),
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(path, &operator.into(), detail));
        }
    }
}

pub(super) fn validate_limit_range(range: &Value, errors: &mut Vec<FieldError>) {
    let mut types = HashSet::new();
    for (i, limit) in items(range, "/spec/limits").iter().enumerate() {
        let field = index_path("spec.limits", i);
        let kind = text(limit, "/type");
        validate_limit_type(&format!("{field}.type"), kind, errors);
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(format!("{field}.type"), &kind.into()));
        }
        let names = match kind {
            "Pod" | "Container" => ResourceListKind::Container,
            _ => ResourceListKind::Other,
        };
        for side in SIDES {
            let side_path = format!("{field}.{side}");
            let amounts = get(limit, &format!("/{side}"));
            let is_default = matches!(side, "default" | "defaultRequest");
            if kind == "Pod" && is_default && entries(amounts, "").next().is_some() {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(side_path, detail));
                continue;
            }
            for (name, amount) in entries(amounts, "") {
                let side_path = format!("{side_path}[{name}]");
                report_name_faults(names, &side_path, name, errors);
                if let Err(detail) = Quantity::from_value(amount) {
                    errors.push(FieldError::invalid(side_path, amount, detail.to_string()));
                }
            }
        }
        let bounds_storage = ["/min/storage", "/max/storage"]
            .iter()
            .any(|path| has(limit, path));
        if kind == "PersistentVolumeClaim" && !bounds_storage {
            let detail =
                "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(format!("{field}.limits"), detail));
        }
        validate_order(&field, kind, limit, errors);
    }
}

const SIDES: [&str; 5] = [
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];

fn validate_limit_type(field: &str, kind: &str, errors: &mut Vec<FieldError>) {
    let detail = match validate_qualified_name(kind) {
        Err(detail) => detail,
        Ok(()) if !kind.contains('/') && !LIMIT_TYPES.contains(&kind) => {
            "must be a standard limit type or fully qualified".to_owned()
        }
        Ok(()) => return,
    };
    errors.push(FieldError::invalid(field, &kind.into(), detail));
}

/// A rule on two sides of a limit: the lower, the upper, the side that is blamed, the side whose
/// value is shown, and how the error calls both.
type LimitOrder = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    [&'static str; 2],
);
const ORDERS: [LimitOrder; 6] = [
    ("min", "max", "min", "min", ["min", "max"]),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "defaultRequest",
        ["min", "default request"],
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "defaultRequest",
        ["default request", "max"],
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        ["default request", "default limit"],
    ),
    ("min", "default", "default", "min", ["min", "default"]),
    ("default", "max", "default", "max", ["default", "max"]),
];

/// Validates the amounts of a limit against each other.
fn validate_order(field: &str, kind: &str, limit: &Value, errors: &mut Vec<FieldError>) {
    let amount = |side: &str, name: &str| {
        let amounts = get(limit, &format!("/{side}"));
        // Scopes of pods are refused as a whole.
        let is_read = kind != "Pod" || !matches!(side, "default" | "defaultRequest");
        let amount = amounts.get(name).filter(|_| is_read)?;
        Quantity::from_value(amount)
            .ok()
            .map(|_| resource_quantity(amounts, name))
    };
    let names = SIDES.iter().flat_map(|side| {
        entries(limit, &format!("/{side}"))
            .map(|(n, _)| n)
            .collect::<Vec<_>>()
    });
    for name in names.collect::<BTreeSet<&str>>() {
        for (low, high, error_list, value_list, [low_name, high_name]) in ORDERS {
            if let (Some(lower), Some(upper)) = (amount(low, name), amount(high, name))
                && lower > upper
            {
                let value = get(limit, &format!("/{value_list}")).get(name);
                errors.push(FieldError::invalid(
                    format!("{field}.{error_list}[{name}]"),
                    value.unwrap_or(&Value::Null),
                    format!("{low_name} value {lower} is greater than {high_name} value {upper}"),
                ));
            }
        }
        let bounds = (amount("min", name), amount("max", name));
        if let Some(ratio) = amount("maxLimitRequestRatio", name) {
            validate_ratio(
                &format!("{field}.maxLimitRequestRatio[{name}]"),
                ratio,
                bounds,
                errors,
            );
        }
        if let (Some(limit), Some(request)) =
            (amount("default", name), amount("defaultRequest", name))
            && is_exclusive(name)
            && limit != request
        {
            errors.push(FieldError::invalid(
                format!("{field}.defaultRequest[{name}]"),
                &request.to_string().into(),
                format!(
                    "default value {limit} must equal to defaultRequest value {request} in {name}"
                ),
            ));
        }
    }
}

/// Requires a ratio of limits to requests to be at least one, and at most the ratio of the maximum
/// to the minimum.
#[expect(
    clippy::cast_precision_loss,
    reason = "Kubernetes compares ratios as floats"
)]
fn validate_ratio(
    field: &str,
    ratio: Quantity,
    bounds: (Option<Quantity>, Option<Quantity>),
    errors: &mut Vec<FieldError>,
) {
    let ratio_text = Value::from(ratio.to_string());
    if ratio < Quantity::from_units(1) {
        let detail = format!("ratio {ratio} is less than 1");
        errors.push(FieldError::invalid(field, &ratio_text, detail));
    }
    if let (Some(min), Some(max)) = bounds {
        let max_ratio = max.milli_value() as f64 / min.milli_value() as f64;
        if ratio.milli_value() as f64 / 1000.0 > max_ratio {
            let detail = format!("ratio {ratio} is greater than max/min = {max_ratio:.6}");
            errors.push(FieldError::invalid(field, &ratio_text, detail));
        }
    }
}
