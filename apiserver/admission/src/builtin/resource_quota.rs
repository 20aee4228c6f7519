//! Validates ResourceQuota and LimitRange.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use crate::resource_list::{self, ResourceListKind};
use crate::unstructured::{entries, get, index_path, items, text, validate_immutable_field};

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
        resource_list::validate_resource_list(
            ResourceListKind::Quota,
            field,
            get(new, path),
            errors,
        );
    }
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec.scopes", errors);
        validate_immutable_field(new, old, "spec.scopeSelector", errors);
    }
}

pub(super) fn validate_limit_range(range: &Value, errors: &mut Vec<FieldError>) {
    let mut types = HashSet::new();
    for (i, limit) in items(range, "/spec/limits").iter().enumerate() {
        let field = index_path("spec.limits", i);
        let kind = text(limit, "/type");
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(format!("{field}.type"), &kind.into()));
        }
        let sides = [
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ];
        for side in sides {
            resource_list::validate_resource_list(
                ResourceListKind::LimitRange,
                &format!("{field}.{side}"),
                get(limit, &format!("/{side}")),
                errors,
            );
        }
        if kind == "Pod" {
            for side in ["default", "defaultRequest"] {
                if entries(limit, &format!("/{side}")).next().is_some() {
                    errors.push(FieldError::forbidden(
                        format!("{field}.{side}"),
                        "may not be specified when `type` is 'Pod'",
                    ));
                }
            }
        }
        // Requires min ≤ defaultRequest ≤ default ≤ max.
        let order = ["min", "defaultRequest", "default", "max"];
        for (low, side) in order.iter().enumerate() {
            for upper in &order[low + 1..] {
                validate_not_above(&field, limit, side, upper, errors);
            }
        }
    }
}

fn validate_not_above(
    field: &str,
    limit: &Value,
    low: &str,
    high: &str,
    errors: &mut Vec<FieldError>,
) {
    let upper = get(limit, &format!("/{high}"));
    for (key, value) in entries(limit, &format!("/{low}")) {
        if upper.get(key).is_none() {
            continue;
        }
        let (amount, most) = (
            resource_list::resource_quantity(get(limit, &format!("/{low}")), key),
            resource_list::resource_quantity(upper, key),
        );
        if amount > most {
            errors.push(FieldError::invalid(
                format!("{field}.{low}[{key}]"),
                value,
                format!("{low} value {amount} is greater than {high} value {most}"),
            ));
        }
    }
}
