//! Validates the resources that containers and pods request, and their limits.

use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::resource_claims::{self, ResourceClaimNames};
use crate::resource_list::{ResourceListKind, resource_quantity, validate_resource_list};
use crate::unstructured::{entries, get, items};

/// Validates the resources of a container at `field`. `claims` are the claims of its pod.
pub(super) fn validate(
    field: &str,
    resources: &Value,
    claims: &ResourceClaimNames<'_>,
    errors: &mut Vec<FieldError>,
) {
    validate_requirements(ResourceListKind::Container, field, resources, errors);
    resource_claims::validate_references(
        &format!("{field}.claims"),
        items(resources, "/claims"),
        claims,
        errors,
    );
}

/// Validates a list of amounts as if they were limits.
pub(super) fn validate_limits(field: &str, limits: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.limits");
    validate_side(ResourceListKind::Container, &field, limits, errors);
}

/// Validates requests and limits.
pub(super) fn validate_requirements(
    kind: ResourceListKind,
    field: &str,
    resources: &Value,
    errors: &mut Vec<FieldError>,
) {
    let (limits, requests) = (get(resources, "/limits"), get(resources, "/requests"));
    validate_side(kind, &format!("{field}.limits"), limits, errors);
    validate_side(kind, &format!("{field}.requests"), requests, errors);
    for (key, value) in entries(requests, "") {
        validate_request(field, key, value, (requests, limits), errors);
    }
    let has = |matches: fn(&str) -> bool| {
        let mut names = entries(limits, "").chain(entries(requests, ""));
        names.any(|(name, _)| matches(name))
    };
    let has_pages = has(|name| name.starts_with("hugepages-"));
    if has_pages && !has(|name| matches!(name, "cpu" | "memory")) {
        let detail = "HugePages require cpu or memory";
        errors.push(FieldError::forbidden(field, detail));
    }
}

fn validate_side(
    kind: ResourceListKind,
    field: &str,
    amounts: &Value,
    errors: &mut Vec<FieldError>,
) {
    validate_resource_list(kind, field, amounts, errors);
    for (name, value) in entries(amounts, "") {
        let amount = resource_quantity(amounts, name);
        if let Some(size) = name.strip_prefix("hugepages-")
            && !is_divisible(amount, size)
        {
            let path = format!("{field}[{name}]");
            let detail = format!("{amount} is not positive integer multiple of {name}");
            errors.push(FieldError::invalid(path, value, detail));
        }
    }
}

/// Whether an amount is a number of whole pages of a size.
fn is_divisible(amount: Quantity, size: &str) -> bool {
    let size = Quantity::parse(size).map_or(0, Quantity::value);
    size > 0 && amount.value() % size == 0
}

/// Whether containers cannot share the resource: huge pages, and the devices of a domain.
pub(super) fn is_exclusive(resource: &str) -> bool {
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    resource.starts_with("hugepages-") || !is_native
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
    let detail = if is_exclusive && request != limit {
        format!("must be equal to {resource} limit of {limit}")
    } else if !is_exclusive && request > limit {
        format!("must be less than or equal to {resource} limit of {limit}")
    } else {
        return;
    };
    errors.push(FieldError::invalid(
        format!("{field}.requests"),
        value,
        detail,
    ));
}
