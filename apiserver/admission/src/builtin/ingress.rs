//! Validates Ingress (`networking.k8s.io/v1`).

use std::net::IpAddr;

use machinery::FieldError;
use machinery::names::{validate_dns1035_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::numbers::validate_port;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text};

pub(crate) fn validate(ingress: &Value, errors: &mut Vec<FieldError>) {
    let spec = get(ingress, "/spec");
    let default = get(spec, "/defaultBackend");
    let rules = items(spec, "/rules");
    if default.is_null() && rules.is_empty() {
        errors.push(FieldError::invalid(
            "spec",
            spec,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if !default.is_null() {
        validate_backend("spec.defaultBackend", default, errors);
    }
    for (i, rule) in rules.iter().enumerate() {
        let field = index_path("spec.rules", i);
        validate_host(&format!("{field}.host"), text(rule, "/host"), errors);
        if !has(rule, "/http") {
            continue;
        }
        let field = format!("{field}.http.paths");
        let paths = items(rule, "/http/paths");
        if paths.is_empty() {
            errors.push(FieldError::required(&field, ""));
        }
        for (j, entry) in paths.iter().enumerate() {
            validate_http_path(&index_path(&field, j), entry, errors);
        }
    }
    for (i, tls) in items(spec, "/tls").iter().enumerate() {
        for (j, name) in items(tls, "/hosts").iter().enumerate() {
            let field = index_path(&format!("{}.hosts", index_path("spec.tls", i)), j);
            validate_host(&field, name.as_str().unwrap_or(""), errors);
        }
        let secret = text(tls, "/secretName");
        if !secret.is_empty() {
            let field = format!("{}.secretName", index_path("spec.tls", i));
            report_invalid(field, secret, validate_dns1123_subdomain(secret), errors);
        }
    }
}

fn validate_host(field: &str, host: &str, errors: &mut Vec<FieldError>) {
    if host.is_empty() {
        return;
    }
    if host.parse::<IpAddr>().is_ok() {
        errors.push(FieldError::invalid(
            field,
            &host.into(),
            "must be a DNS name, not an IP address",
        ));
        return;
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    report_invalid(field, host, validate_dns1123_subdomain(name), errors);
}

fn validate_http_path(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let path = text(entry, "/path");
    match text(entry, "/pathType") {
        "" => errors.push(FieldError::required(
            format!("{field}.pathType"),
            "pathType must be specified",
        )),
        "Exact" | "Prefix" => {
            if !path.starts_with('/') {
                errors.push(FieldError::invalid(
                    format!("{field}.path"),
                    &path.into(),
                    "must be an absolute path",
                ));
            }
            for forbidden in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(forbidden) {
                    errors.push(FieldError::invalid(
                        format!("{field}.path"),
                        &path.into(),
                        format!("must not contain '{forbidden}'"),
                    ));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !path.starts_with('/') {
                errors.push(FieldError::invalid(
                    format!("{field}.path"),
                    &path.into(),
                    "must be an absolute path",
                ));
            }
        }
        other => errors.push(FieldError::not_supported(
            format!("{field}.pathType"),
            &other.into(),
            &["Exact", "ImplementationSpecific", "Prefix"],
        )),
    }
    validate_backend(&format!("{field}.backend"), get(entry, "/backend"), errors);
}

fn validate_backend(field: &str, backend: &Value, errors: &mut Vec<FieldError>) {
    let (service, resource) = (has(backend, "/service"), has(backend, "/resource"));
    if service && resource {
        errors.push(FieldError::invalid(
            field,
            backend,
            "cannot set both resource and service backends",
        ));
        return;
    }
    if resource {
        return;
    }
    if !service {
        errors.push(FieldError::required(
            field,
            "must set a service or a resource backend",
        ));
        return;
    }
    let name = text(backend, "/service/name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{field}.service.name"), ""));
    } else {
        report_invalid(
            format!("{field}.service.name"),
            name,
            validate_dns1035_label(name),
            errors,
        );
    }
    let named = !text(backend, "/service/port/name").is_empty();
    match int(backend, "/service/port/number").filter(|n| *n != 0) {
        Some(_) if named => errors.push(FieldError::invalid(
            field,
            backend,
            "cannot set both port name & port number",
        )),
        Some(number) => validate_port(format!("{field}.service.port.number"), number, errors),
        None if named => {}
        None => errors.push(FieldError::required(
            field,
            "port name or number is required",
        )),
    }
}
