//! Validates the resources of a whole pod: claims of dynamic resource allocation, and the amounts
//! that its containers share.

use std::collections::{BTreeSet, HashMap, HashSet};

use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use machinery::{FieldError, Quantity};
use serde_json::Value;

use super::container_resources::validate_requirements;
use super::pods::{ValidatedPodSpec, not_found};
use crate::resource_list::{ResourceListKind, resource_quantity, validate_resource_name};
use crate::unstructured::{entries, get, has, index_path, items, report_invalid, text};

/// The resources that a pod has as a whole, beside huge pages.
const SHARED_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// The names of the resource claims of a pod.
pub(super) type ResourceClaimNames<'a> = BTreeSet<&'a str>;

/// Validates the resource claims of a pod spec; returns their names.
pub(super) fn validate_claims<'a>(
    pod_spec: ValidatedPodSpec<'a>,
    errors: &mut Vec<FieldError>,
) -> ResourceClaimNames<'a> {
    let mut names = ResourceClaimNames::new();
    for (i, claim) in items(pod_spec.spec, "/resourceClaims").iter().enumerate() {
        let at = index_path(&pod_spec.at("resourceClaims"), i);
        let name = text(claim, "/name");
        let at_name = format!("{at}.name");
        if name.is_empty() {
            errors.push(FieldError::required(at_name, ""));
        } else if names.contains(name) {
            errors.push(FieldError::duplicate(at_name, &name.into()));
        } else {
            report_invalid(at_name, name, validate_dns1123_label(name), errors);
            names.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let set = sources.map(|source| has(claim, &format!("/{source}")));
        let why = match set {
            [true, true] => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            [false, false] => {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            }
            _ => "",
        };
        if !why.is_empty() {
            errors.push(FieldError::invalid(&at, claim, why));
        }
        for (source, _) in sources.iter().zip(set).filter(|(_, set)| *set) {
            let name = text(claim, &format!("/{source}"));
            let result = validate_dns1123_subdomain(name);
            report_invalid(format!("{at}.{source}"), name, result, errors);
        }
    }
    names
}

/// Validates the claims that a container uses: each must be one of its pod's.
pub(super) fn validate_claim_references(
    field: &str,
    references: &[Value],
    claims: &ResourceClaimNames<'_>,
    errors: &mut Vec<FieldError>,
) {
    // The requests that are in use of each claim; an empty one stands for all of them.
    let mut used: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (i, reference) in references.iter().enumerate() {
        let at = index_path(field, i);
        let (name, request) = (text(reference, "/name"), text(reference, "/request"));
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        if !request.is_empty() {
            let result = validate_dns1123_label(request);
            report_invalid(format!("{at}.request"), request, result, errors);
        }
        let requests = used.entry(name).or_default();
        let is_whole = requests.contains("") || request.is_empty() && !requests.is_empty();
        if is_whole {
            errors.push(FieldError::duplicate(&at, &name.into()));
        } else if requests.contains(request) {
            let both = format!("{name}/{request}");
            errors.push(FieldError::duplicate(&at, &both.into()));
        }
        requests.insert(request);
        if !claims.contains(name) {
            let why = match claims.is_empty() {
                true => " which is empty".to_owned(),
                false => {
                    let names: Vec<&str> = claims.iter().copied().collect();
                    format!(": {}", names.join(", "))
                }
            };
            let why = format!("must be one of the names in pod.spec.resourceClaims{why}");
            errors.push(not_found(at, name, &why));
        }
    }
}

/// Validates the amounts that a pod spec has for all containers together.
pub(super) fn validate(pod_spec: ValidatedPodSpec<'_>, errors: &mut Vec<FieldError>) {
    let resources = get(pod_spec.spec, "/resources");
    if resources.is_null() {
        return;
    }
    let field = pod_spec.at("resources");
    if has(resources, "/claims") {
        let why = "claims cannot be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{field}.claims"), why));
    }
    validate_requirements(ResourceListKind::Other, &field, resources, errors);
    for side in ["limits", "requests"] {
        for (name, _) in entries(resources, &format!("/{side}")) {
            let is_shared = matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
            if validate_resource_name(ResourceListKind::Other, name).is_ok() && !is_shared {
                let at = format!("{field}.{side}[{name}]");
                errors.push(FieldError::not_supported(
                    at,
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
            let (own, all) = (
                resource_quantity(amounts, name),
                resource_quantity(limits, name),
            );
            if own > all {
                errors.push(FieldError::invalid(
                    format!("{field}.containers[{i}][{name}].limits"),
                    &own.to_string().into(),
                    format!("must be less than or equal to pod limits of {all}"),
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
        let (mut sidecars, mut most) = (Quantity::default(), Quantity::default());
        for container in items(spec, "/initContainers") {
            let amount = request(container, name);
            if text(container, "/restartPolicy") == "Always" {
                running += amount;
                sidecars += amount;
                most = most.max(sidecars);
            } else {
                most = most.max(sidecars + amount);
            }
        }
        (name, running.max(most))
    })
}
