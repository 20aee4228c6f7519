//! Mutates and validates Service.

use std::collections::HashSet;
use std::net::IpAddr;

use machinery::FieldError;
use machinery::names::{dns1123_label, dns1123_subdomain};
use serde_json::Value;

use super::{containers, port};
use crate::tree::{check, get, has, int, items, not_empty_or, nth, object_mut, text};

fn kind(service: &Value) -> &str {
    not_empty_or(text(service, "/spec/type"), "ClusterIP")
}

/// Keeps the cluster IP when an update leaves it out.
pub(super) fn mutate(new: &mut Value, old: Option<&Value>) {
    let Some(old) = old else {
        return;
    };
    if kind(new) == "ExternalName" || kind(old) == "ExternalName" {
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
    let kind = kind(new);
    if !matches!(
        kind,
        "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName"
    ) {
        errors.push(FieldError::not_supported(
            "spec.type",
            &kind.into(),
            &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        ));
    }
    let address = text(new, "/spec/clusterIP");
    let headless = address == "None";
    if kind == "ExternalName" {
        external(new, errors);
    } else if !address.is_empty() && !headless && address.parse::<IpAddr>().is_err() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &address.into(),
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
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
    ports(new, kind, errors);
    let affinity = text(new, "/spec/sessionAffinity");
    if !matches!(affinity, "" | "None" | "ClientIP") {
        errors.push(FieldError::not_supported(
            "spec.sessionAffinity",
            &affinity.into(),
            &["ClientIP", "None"],
        ));
    }
    if let Some(old) = old {
        same_address(new, old, errors);
    }
}

fn external(service: &Value, errors: &mut Vec<FieldError>) {
    let name = text(service, "/spec/externalName");
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else {
        let host = name.strip_suffix('.').unwrap_or(name);
        check("spec.externalName", name, dns1123_subdomain(host), errors);
    }
    if !text(service, "/spec/clusterIP").is_empty() {
        errors.push(FieldError::forbidden(
            "spec.clusterIPs",
            "may not be set for ExternalName services",
        ));
    }
}

fn ports(service: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let ports = items(service, "/spec/ports");
    let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
    for (i, entry) in ports.iter().enumerate() {
        let at = nth("spec.ports", i);
        let name = text(entry, "/name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(format!("{at}.name"), ""));
            }
        } else {
            check(format!("{at}.name"), name, dns1123_label(name), errors);
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
        }
        let number = int(entry, "/port").unwrap_or(0);
        port(format!("{at}.port"), number, errors);
        containers::protocol(&at, entry, errors);
        if !numbers.insert((number, not_empty_or(text(entry, "/protocol"), "TCP"))) {
            errors.push(FieldError::duplicate(&at, entry));
        }
        match get(entry, "/targetPort") {
            Value::Number(n) => port(format!("{at}.targetPort"), n.as_i64().unwrap_or(0), errors),
            Value::String(name) => check(
                format!("{at}.targetPort"),
                name,
                containers::port_name(name),
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
}

/// Forbids changes of the cluster IP, unless the type changes to or from ExternalName.
fn same_address(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if kind(new) == "ExternalName" || kind(old) == "ExternalName" {
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
