//! Validates pods and pod templates.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::{
    validate_dns1123_label, validate_dns1123_subdomain, validate_qualified_name,
};
use serde_json::Value;

use super::ip_addresses::validate_address;
use super::{containers, pod_scheduling, security_context, volumes};
use crate::unstructured::{
    get, index_path, int, items, items_mut, non_empty_or, pointer, report_invalid, text, texts,
};

pub(super) const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
/// Resolvers of C libraries read no more.
const MAX_NAMESERVERS: usize = 3;

/// `field` is the dotted path of a pod spec in `object`, `policies` are its allowed
/// restart policies.
pub(super) fn validate(
    field: &str,
    object: &Value,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let spec = get(object, &pointer(field));
    let mut names = HashSet::new();
    for (i, volume) in items(spec, "/volumes").iter().enumerate() {
        let at = format!("{}.name", index_path(&format!("{field}.volumes"), i));
        let name = text(volume, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        report_invalid(&at, name, validate_dns1123_label(name), errors);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(at, &name.into()));
        }
        let at = index_path(&format!("{field}.volumes"), i);
        volumes::validate(&at, volume, errors);
    }
    names.extend(claim_template_volumes(object));
    containers::validate(field, spec, &names, errors);
    pod_scheduling::validate(field, spec, errors);
    security_context::validate_pod(field, spec, errors);
    validate_names(field, spec, errors);
    validate_network(field, spec, errors);
    if let Some(seconds) = int(spec, "/activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            format!("{field}.activeDeadlineSeconds"),
            &seconds.into(),
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    let policy = non_empty_or(text(spec, "/restartPolicy"), "Always");
    if !policies.contains(&policy) {
        errors.push(FieldError::not_supported(
            format!("{field}.restartPolicy"),
            &policy.into(),
            policies,
        ));
    }
}

/// Validates the names of other objects, and those that the pod has in the network.
fn validate_names(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    for name in [
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
        "serviceAccountName",
    ] {
        let value = text(spec, &format!("/{name}"));
        if !value.is_empty() {
            let result = validate_dns1123_subdomain(value);
            report_invalid(format!("{field}.{name}"), value, result, errors);
        }
    }
    for name in ["hostname", "subdomain"] {
        let value = text(spec, &format!("/{name}"));
        if !value.is_empty() {
            let result = validate_dns1123_label(value);
            report_invalid(format!("{field}.{name}"), value, result, errors);
        }
    }
    for (list, name) in [
        ("readinessGates", "conditionType"),
        ("schedulingGates", "name"),
    ] {
        for (i, gate) in items(spec, &format!("/{list}")).iter().enumerate() {
            let value = text(gate, &format!("/{name}"));
            let at = index_path(&format!("{field}.{list}"), i);
            let result = validate_qualified_name(value);
            report_invalid(format!("{at}.{name}"), value, result, errors);
        }
    }
}

/// Validates host aliases and the configuration of DNS.
fn validate_network(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    for (i, alias) in items(spec, "/hostAliases").iter().enumerate() {
        let at = index_path(&format!("{field}.hostAliases"), i);
        validate_address(&format!("{at}.ip"), text(alias, "/ip"), &[], errors);
        for name in texts(alias, "/hostnames") {
            let result = validate_dns1123_subdomain(name);
            report_invalid(format!("{at}.hostnames"), name, result, errors);
        }
    }
    let servers = items(spec, "/dnsConfig/nameservers");
    let at = format!("{field}.dnsConfig.nameservers");
    if text(spec, "/dnsPolicy") == "None" && servers.is_empty() {
        let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.push(FieldError::required(&at, why));
    }
    if servers.len() > MAX_NAMESERVERS {
        errors.push(FieldError::invalid(
            &at,
            &servers.into(),
            format!("must not have more than {MAX_NAMESERVERS} nameservers"),
        ));
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or("");
        validate_address(&index_path(&at, i), server, &[], errors);
    }
}

/// The volumes that a StatefulSet creates for each of its pods.
fn claim_template_volumes(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/spec/volumeClaimTemplates")
        .iter()
        .map(|claim| text(claim, "/metadata/name"))
}

/// Kubernetes' error for an update of immutable pod fields.
const POD_UPDATE_FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate_pod(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate("spec", new, RESTART_POLICIES, errors);
    let Some(old) = old else {
        return;
    };
    let (was, is) = (get(old, "/spec"), get(new, "/spec"));
    if was != is && immutable_pod_spec(was, was) != immutable_pod_spec(is, was) {
        errors.push(FieldError::forbidden("spec", POD_UPDATE_FORBIDDEN));
    }
    let tolerations = items(was, "/tolerations");
    if !tolerations
        .iter()
        .all(|t| items(is, "/tolerations").contains(t))
    {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

/// The pod spec without its mutable fields.
fn immutable_pod_spec(spec: &Value, was: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in items_mut(&mut spec, &format!("/{list}")) {
            if let Some(map) = container.as_object_mut() {
                map.remove("image");
            }
        }
    }
    if let Some(map) = spec.as_object_mut() {
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            map.remove(field);
        }
        let grace = "terminationGracePeriodSeconds";
        if int(was, "/terminationGracePeriodSeconds").is_some_and(|s| s < 0) {
            map.remove(grace);
        }
    }
    spec
}
