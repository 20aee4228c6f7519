//! Mutates and validates Service.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::numbers::validate_port;
use super::ports::{validate_port_name, validate_protocol};
use super::{service_addresses, service_traffic};
use crate::metadata;
use crate::unstructured::{
    get, has, index_path, int, items, non_empty_or, object_mut, report_invalid, text,
};

const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// One day.
const MAX_AFFINITY_SECONDS: i64 = 86_400;
/// The port of kubelets, which a load balancer would open to the world.
const KUBELET_PORT: i64 = 10_250;

fn service_type(service: &Value) -> &str {
    non_empty_or(text(service, "/spec/type"), "ClusterIP")
}

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
    if !SERVICE_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(
            "spec.type",
            &kind.into(),
            &SERVICE_TYPES,
        ));
    }
    let headless = text(new, "/spec/clusterIP") == "None";
    if kind == "ExternalName" {
        validate_external_name(new, errors);
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &"None".into(),
            format!("may not be set to 'None' for {kind} services"),
        ));
    }
    if items(new, "/spec/ports").is_empty() && kind != "ExternalName" && !headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    validate_service_ports(new, kind, errors);
    let selector = get(new, "/spec/selector");
    metadata::validate_labels("spec.selector", selector, errors);
    validate_session_affinity(get(new, "/spec"), errors);
    service_addresses::validate(new, old, kind, errors);
    service_traffic::validate(new, old, kind, errors);
    if let Some(old) = old {
        validate_cluster_ip_update(new, old, errors);
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
    let name = text(service, "/spec/externalName");
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else {
        let host = name.strip_suffix('.').unwrap_or(name);
        report_invalid(
            "spec.externalName",
            name,
            validate_dns1123_subdomain(host),
            errors,
        );
    }
    if !text(service, "/spec/clusterIP").is_empty() {
        errors.push(FieldError::forbidden(
            "spec.clusterIPs",
            "may not be set for ExternalName services",
        ));
    }
}

fn validate_service_ports(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let ports = items(service, "/spec/ports");
    let mut names = HashSet::new();
    for (i, entry) in ports.iter().enumerate() {
        let at = index_path("spec.ports", i);
        let name = text(entry, "/name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{at}.name"), ""));
            }
        } else {
            report_invalid(
                format!("{at}.name"),
                name,
                validate_dns1123_label(name),
                errors,
            );
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
        }
        let number = int(entry, "/port").unwrap_or(0);
        validate_port(format!("{at}.port"), number, errors);
        validate_protocol(&at, entry, errors);
        if kind == "LoadBalancer" && number == KUBELET_PORT {
            errors.push(FieldError::invalid(
                format!("{at}.port"),
                &number.into(),
                "may not expose port 10250 externally since it is used by kubelet",
            ));
        }
        match get(entry, "/targetPort") {
            Value::Number(n) => {
                validate_port(format!("{at}.targetPort"), n.as_i64().unwrap_or(0), errors)
            }
            Value::String(name) => report_invalid(
                format!("{at}.targetPort"),
                name,
                validate_port_name(name),
                errors,
            ),
            _ => {}
        }
        if int(entry, "/nodePort").is_some_and(|n| n != 0) && kind == "ClusterIP" {
            errors.push(FieldError::forbidden(
                format!("{at}.nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
    }
    validate_distinct_ports(ports, errors);
}

/// Requires port and node port to be distinct within a protocol.
fn validate_distinct_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    for number in ["port", "nodePort"] {
        let mut numbers = HashSet::new();
        for (i, entry) in ports.iter().enumerate() {
            let value = int(entry, &format!("/{number}")).unwrap_or(0);
            let protocol = non_empty_or(text(entry, "/protocol"), "TCP");
            if value == 0 || numbers.insert((value, protocol)) {
                continue;
            }
            let at = index_path("spec.ports", i);
            errors.push(match number {
                "port" => FieldError::duplicate(at, entry),
                _ => FieldError::duplicate(format!("{at}.{number}"), &value.into()),
            });
        }
    }
}

/// Forbids changes of the cluster IP, unless the type changes to or from ExternalName.
fn validate_cluster_ip_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if service_type(new) == "ExternalName" || service_type(old) == "ExternalName" {
        return;
    }
    if has(old, "/spec/clusterIP")
        && !text(old, "/spec/clusterIP").is_empty()
        && get(new, "/spec/clusterIP") != get(old, "/spec/clusterIP")
    {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            get(new, "/spec/clusterIP"),
            "may not change once set",
        ));
    }
}
