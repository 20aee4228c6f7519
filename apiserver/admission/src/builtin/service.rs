//! Mutates and validates Service.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::numbers::validate_port;
use super::ports::{validate_app_protocol, validate_port_name, validate_protocol};
use super::service_updates::service_type;
use super::{service_addresses, service_traffic, service_updates};
use crate::metadata;
use crate::unstructured::{
    get, has, index_path, int, items, non_empty_or, object_mut, report_invalid, text,
};

const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// One day.
const MAX_AFFINITY_SECONDS: i64 = 86_400;
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

/// Keeps the cluster IP when an update leaves it out.
pub(super) fn mutate(new: &mut Value, old: Option<&Value>) {
    let Some(old) = old else {
        return;
    };
    if service_type(new) == "ExternalName" || service_type(old) == "ExternalName" {
        return;
    }
    let no_address = text(new, "/spec/clusterIP").is_empty();
    let no_addresses = items(new, "/spec/clusterIPs").is_empty();
    if let Some(spec) = object_mut(new, &["spec"]) {
        for (field, no_address) in [
            ("clusterIP", no_address),
            ("clusterIPs", no_address && no_addresses),
        ] {
            if let Some(value) = get(old, "/spec").get(field).filter(|_| no_address) {
                spec.insert(field.into(), value.clone());
            }
        }
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let kind = service_type(new);
    if let Some(old) = old {
        service_updates::validate(new, old, errors);
    }
    validate_topology_annotations(new, errors);
    let is_headless = text(new, "/spec/clusterIP") == "None";
    if items(new, "/spec/ports").is_empty() && kind != "ExternalName" && !is_headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        validate_external_name(new, errors);
    } else if is_headless && matches!(kind, "NodePort" | "LoadBalancer") {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &"None".into(),
            format!("may not be set to 'None' for {kind} services"),
        ));
    }
    validate_service_ports(new, kind, errors);
    let selector = get(new, "/spec/selector");
    metadata::validate_labels("spec.selector", selector, errors);
    validate_session_affinity(get(new, "/spec"), errors);
    service_addresses::validate(new, old, kind, errors);
    if !SERVICE_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(
            "spec.type",
            &kind.into(),
            &SERVICE_TYPES,
        ));
    }
    service_traffic::validate(new, kind, errors);
}

/// The old and the new name of an annotation may not contradict each other.
fn validate_topology_annotations(service: &Value, errors: &mut Vec<FieldError>) {
    let annotations = get(service, "/metadata/annotations");
    let (hints, mode) = (
        annotations.get(TOPOLOGY_HINTS),
        annotations.get(TOPOLOGY_MODE),
    );
    if let (Some(hints), Some(mode)) = (hints, mode)
        && hints != mode
    {
        let path = format!("metadata.annotations[{TOPOLOGY_MODE}]");
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.push(FieldError::invalid(path, mode, detail));
    }
}

fn validate_session_affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    let affinity = text(spec, "/sessionAffinity");
    let field = "spec.sessionAffinityConfig";
    match affinity {
        "" | "None" if has(spec, "/sessionAffinityConfig") => errors.push(FieldError::forbidden(
            field,
            "must not be set when session affinity is None",
        )),
        "" | "None" => {}
        "ClientIP" => {
            let seconds = int(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds");
            if let Some(seconds) = seconds
                && !(1..=MAX_AFFINITY_SECONDS).contains(&seconds)
            {
                errors.push(FieldError::invalid(
                    format!("{field}.clientIP.timeoutSeconds"),
                    &seconds.into(),
                    format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"),
                ));
            }
        }
        other => errors.push(FieldError::not_supported(
            "spec.sessionAffinity",
            &other.into(),
            &["ClientIP", "None"],
        )),
    }
}

fn validate_external_name(service: &Value, errors: &mut Vec<FieldError>) {
    let set = [
        ("clusterIPs", !text(service, "/spec/clusterIP").is_empty()),
        ("ipFamilies", !items(service, "/spec/ipFamilies").is_empty()),
        ("ipFamilyPolicy", has(service, "/spec/ipFamilyPolicy")),
    ];
    for (name, _) in set.iter().filter(|(_, is_set)| *is_set) {
        let detail = "may not be set for ExternalName services";
        errors.push(FieldError::forbidden(format!("spec.{name}"), detail));
    }
    let name = text(service, "/spec/externalName");
    let host = name.strip_suffix('.').unwrap_or(name);
    if host.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else {
        let result = validate_dns1123_subdomain(host);
        report_invalid("spec.externalName", host, result, errors);
    }
}

fn validate_service_ports(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let ports = items(service, "/spec/ports");
    let mut names = HashSet::new();
    for (i, entry) in ports.iter().enumerate() {
        let path = index_path("spec.ports", i);
        let name = text(entry, "/name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            }
        } else {
            report_invalid(
                format!("{path}.name"),
                name,
                validate_dns1123_label(name),
                errors,
            );
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
            }
        }
        let number = int(entry, "/port").unwrap_or(0);
        validate_port(format!("{path}.port"), number, errors);
        validate_protocol(&path, entry, errors);
        match get(entry, "/targetPort") {
            Value::Number(n) => validate_port(
                format!("{path}.targetPort"),
                n.as_i64().unwrap_or(0),
                errors,
            ),
            Value::String(name) => report_invalid(
                format!("{path}.targetPort"),
                name,
                validate_port_name(name),
                errors,
            ),
            _ => {}
        }
        validate_app_protocol(&path, entry, errors);
        if int(entry, "/nodePort").is_some_and(|n| n != 0) && kind == "ClusterIP" {
            errors.push(FieldError::forbidden(
                format!("{path}.nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
    }
    validate_distinct_ports(ports, errors);
}

/// Requires port and node port to be distinct within a protocol.
fn validate_distinct_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    for number in ["nodePort", "port"] {
        let mut numbers = HashSet::new();
        for (i, entry) in ports.iter().enumerate() {
            let value = int(entry, &format!("/{number}")).unwrap_or(0);
            let protocol = non_empty_or(text(entry, "/protocol"), "TCP");
            if value == 0 || numbers.insert((value, protocol)) {
                continue;
            }
            let path = index_path("spec.ports", i);
            errors.push(match number {
                "port" => FieldError::duplicate(path, entry),
                _ => FieldError::duplicate(format!("{path}.{number}"), &value.into()),
            });
        }
    }
}
