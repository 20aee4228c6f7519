//! Validates the amounts of resources that the containers of a pod share.

use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::container_resources::validate_requirements;
use super::validated_pod_spec::ValidatedPodSpec;
use crate::resource_list::{ResourceListKind, resource_quantity, validate_resource_name};
use crate::unstructured::{entries, get, has, items, text};

/// The resources that a pod has as a whole, beside huge pages.
const SHARED_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Validates the amounts that a pod spec has for all containers together.
pub(super) fn validate(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let resources = get(pod_spec.spec, "/resources");
    if resources.is_null() {
        return;
    }
    let field = pod_spec.at("resources");
    if has(resources, "/claims") {
        let detail = "claims cannot be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{field}.claims"), detail));
    }
    validate_requirements(ResourceListKind::Other, &field, resources, errors);
    for side in ["limits", "requests"] {
        for (name, _) in entries(resources, &format!("/{side}")) {
            let is_shared = matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
            if validate_resource_name(ResourceListKind::Other, name).is_ok() && !is_shared {
                let path = format!("{field}.{side}[{name}]");
                errors.push(FieldError::not_supported(
                    path,
                    &name.into(),
                    &SHARED_RESOURCES,
                ));
            }
        }
    }
    let requests = get(resources, "/requests");
    for (name, sum) in container_requests(pod_spec.spec) {
        let amount = resource_quantity(requests, name);
        if sum > amount && requests.get(name).is_some() {
            errors.push(FieldError::invalid(
                format!("{field}.requests[{name}]"),
                &amount.to_string().into(),
                format!("must be greater than or equal to aggregate container requests of {sum}"),
            ));
        }
    }
    let limits = get(resources, "/limits");
    for (i, container) in items(pod_spec.spec, "/containers").iter().enumerate() {
        let amounts = get(container, "/resources/limits");
        for (name, _) in entries(amounts, "").filter(|(name, _)| limits.get(name).is_some()) {
            let (container_amount, pod_amount) = (
                resource_quantity(amounts, name),
                resource_quantity(limits, name),
            );
            if container_amount > pod_amount {
                errors.push(FieldError::invalid(
                    format!("{field}.containers[{i}][{name}].limits"),
                    &container_amount.to_string().into(),
                    format!("must be less than or equal to pod limits of {pod_amount}"),
                ));
            }
        }
    }
}

/// The requests of the containers that run at once, or of the init container that requests more
/// than they do (`AggregateContainerRequests`).
fn container_requests(spec: &Value) -> [(&'static str, Quantity); 2] {
    let request = |container: &Value, name: &str| {
        resource_quantity(get(container, "/resources/requests"), name)
    };
    ["cpu", "memory"].map(|name| {
        let containers = items(spec, "/containers").iter();
        let mut running: Quantity = containers.map(|c| request(c, name)).sum();
        let (mut sidecars, mut init_peak) = (Quantity::default(), Quantity::default());
        for container in items(spec, "/initContainers") {
            let amount = request(container, name);
            if text(container, "/restartPolicy") == "Always" {
                running += amount;
                sidecars += amount;
                init_peak = init_peak.max(sidecars);
            } else {
                init_peak = init_peak.max(sidecars + amount);
            }
        }
        (name, running.max(init_peak))
    })
}
