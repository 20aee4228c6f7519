//! Validates the resources that containers request, and their limits.

use machinery::FieldError;
use serde_json::Value;

use crate::resource_list::{self, ResourceListKind, resource_quantity};
use crate::unstructured::{entries, get};

pub(super) fn validate(field: &str, resources: &Value, errors: &mut Vec<FieldError>) {
    let (limits, requests) = (get(resources, "/limits"), get(resources, "/requests"));
    let base = format!("{field}.resources");
    for (side, amounts) in [("limits", limits), ("requests", requests)] {
        resource_list::validate_resource_list(
            ResourceListKind::Container,
            &format!("{base}.{side}"),
            amounts,
            errors,
        );
        validate_whole_devices(&format!("{base}.{side}"), amounts, errors);
    }
    for (key, value) in entries(requests, "") {
        validate_request(&base, key, value, (requests, limits), errors);
    }
    let names = |amounts| entries(amounts, "").map(|(name, _)| name);
    let all: Vec<&str> = names(limits).chain(names(requests)).collect();
    let has_pages = all.iter().any(|name| name.starts_with("hugepages-"));
    if has_pages && !all.iter().any(|name| matches!(*name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(
            base,
            "HugePages require cpu or memory",
        ));
    }
}

/// Whether containers cannot share an amount of it: huge pages, and devices of a domain.
fn is_exclusive(resource: &str) -> bool {
    resource.starts_with("hugepages-") || is_device(resource)
}

fn is_device(resource: &str) -> bool {
    match resource.split_once('/') {
        Some((domain, _)) => domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"),
        None => false,
    }
}

fn validate_request(
    field: &str,
    resource: &str,
    value: &Value,
    (requests, limits): (&Value, &Value),
    errors: &mut Vec<FieldError>,
) {
    let is_exclusive = is_exclusive(resource);
    if limits.get(resource).is_none() {
        if is_exclusive {
            errors.push(FieldError::required(
                format!("{field}.limits"),
                "Limit must be set for non overcommitable resources",
            ));
        }
        return;
    }
    let request = resource_quantity(requests, resource);
    let limit = resource_quantity(limits, resource);
    let why = if is_exclusive && request != limit {
        format!("must be equal to {resource} limit of {limit}")
    } else if !is_exclusive && request > limit {
        format!("must be less than or equal to {resource} limit of {limit}")
    } else {
        return;
    };
    errors.push(FieldError::invalid(format!("{field}.requests"), value, why));
}

/// Requires whole devices.
fn validate_whole_devices(field: &str, amounts: &Value, errors: &mut Vec<FieldError>) {
    for (resource, value) in entries(amounts, "").filter(|(name, _)| is_device(name)) {
        if !resource_quantity(amounts, resource).is_integer() {
            let at = format!("{field}[{resource}]");
            errors.push(FieldError::invalid(at, value, "must be an integer"));
        }
    }
}
