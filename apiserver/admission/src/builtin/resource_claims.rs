//! Validates the claims of dynamic resource allocation: the claims of a pod, and the references of
//! its containers.

use std::collections::{BTreeSet, HashMap, HashSet};

use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use machinery::{FieldError, FieldErrorType};
use serde_json::Value;

use super::validated_pod_spec::ValidatedPodSpec;
use crate::unstructured::{has, index_path, items, report_invalid, text};

/// The names of the resource claims of a pod.
pub(super) type ResourceClaimNames<'a> = BTreeSet<&'a str>;

/// Validates the resource claims of a pod spec; returns their names.
pub(super) fn validate<'a>(
    pod_spec: ValidatedPodSpec<'a>,
    errors: &mut Vec<FieldError>,
) -> ResourceClaimNames<'a> {
    let mut names = ResourceClaimNames::new();
    for (i, claim) in items(pod_spec.spec, "/resourceClaims").iter().enumerate() {
        let path = index_path(&pod_spec.at("resourceClaims"), i);
        let name = text(claim, "/name");
        let at_name = format!("{path}.name");
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
        let detail = match set {
            [true, true] => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            [false, false] => {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            }
            _ => "",
        };
        if !detail.is_empty() {
            errors.push(FieldError::invalid(&path, claim, detail));
        }
        for (source, _) in sources.iter().zip(set).filter(|(_, set)| *set) {
            let name = text(claim, &format!("/{source}"));
            let result = validate_dns1123_subdomain(name);
            report_invalid(format!("{path}.{source}"), name, result, errors);
        }
    }
    names
}

/// Validates the claims that a container uses: each must be one of its pod's.
pub(super) fn validate_references(
    field: &str,
    references: &[Value],
    claims: &ResourceClaimNames<'_>,
    errors: &mut Vec<FieldError>,
) {
    // The requests that are in use of each claim; an empty one stands for all of them.
    let mut used: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (i, reference) in references.iter().enumerate() {
        let path = index_path(field, i);
        let (name, request) = (text(reference, "/name"), text(reference, "/request"));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        if !request.is_empty() {
            let result = validate_dns1123_label(request);
            report_invalid(format!("{path}.request"), request, result, errors);
        }
        let requests = used.entry(name).or_default();
        let is_whole = requests.contains("") || request.is_empty() && !requests.is_empty();
        if is_whole {
            errors.push(FieldError::duplicate(&path, &name.into()));
        } else if requests.contains(request) {
            let claim_and_request = format!("{name}/{request}");
            errors.push(FieldError::duplicate(&path, &claim_and_request.into()));
        }
        requests.insert(request);
        if !claims.contains(name) {
            let detail = match claims.is_empty() {
                true => " which is empty".to_owned(),
                false => {
                    let names: Vec<&str> = claims.iter().copied().collect();
                    format!(": {}", names.join(", "))
                }
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{detail}");
            errors.push(not_found(path, name, &detail));
        }
    }
}

/// Reports a name that is none of the allowed names.
fn not_found(field: String, name: &str, detail: &str) -> FieldError {
    let name = Value::from(name);
    FieldError::new(
        FieldErrorType::NotFound,
        field,
        format!("Not found: {name}: {detail}"),
    )
}
