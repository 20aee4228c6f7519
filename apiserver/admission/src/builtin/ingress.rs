//! Validates Ingress (`networking.k8s.io/v1`).

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::ip_addresses::parse_sloppy;
use super::numbers::validate_port;
use super::ports::validate_port_name;
use super::references::validate_typed_reference;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text, texts};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const INVALID_WILDCARD: &str = r"a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let class = get(new, "/spec/ingressClassName");
    let annotations = get(new, "/metadata/annotations");
    if old.is_none()
        && let Some(annotation) = annotations.get(CLASS_ANNOTATION)
        && !class.is_null()
        && annotation != class
    {
        errors.push(FieldError::invalid(
            format!("annotations.{CLASS_ANNOTATION}"),
            annotation,
            "must match `ingressClassName` when both are specified",
        ));
    }
    let mut of_spec = Vec::new();
    validate_spec(new, &mut of_spec);
    // A violation of the old object may stay.
    if let Some(old) = old {
        let is_invalid_name =
            |field: &str| field.starts_with("spec.tls[") && field.ends_with("].secretName");
        let mut before = Vec::new();
        validate_spec(old, &mut before);
        if before.iter().any(|error| is_invalid_name(&error.field)) {
            of_spec.retain(|error| !is_invalid_name(&error.field));
        }
        let rules = items(new, "/spec/rules");
        let is_wildcard_value = |rules: &[Value], field: &str| {
            let rule = rules.iter().enumerate().find(|(i, _)| {
                field.starts_with(&format!("{}.http", index_path("spec.rules", *i)))
            });
            rule.is_some_and(|(_, rule)| text(rule, "/host").contains('*'))
        };
        let old_rules = items(old, "/spec/rules");
        if before
            .iter()
            .any(|error| is_wildcard_value(old_rules, &error.field))
        {
            of_spec.retain(|error| !is_wildcard_value(rules, &error.field));
        }
    }
    errors.append(&mut of_spec);
}

pub(crate) fn validate_spec(ingress: &Value, errors: &mut Vec<FieldError>) {
    let spec = get(ingress, "/spec");
    let default = get(spec, "/defaultBackend");
    let rules = items(spec, "/rules");
    if default.is_null() && rules.is_empty() {
        errors.push(FieldError::invalid(
            "spec",
            get(spec, "/rules"),
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if !default.is_null() {
        validate_backend("spec.defaultBackend", default, errors);
    }
    for (i, rule) in rules.iter().enumerate() {
        let field = index_path("spec.rules", i);
        validate_rule_host(&format!("{field}.host"), text(rule, "/host"), errors);
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
        let field = index_path("spec.tls", i);
        for (j, host) in texts(tls, "/hosts").enumerate() {
            let path = index_path(&format!("{field}.hosts"), j);
            report_invalid(path, host, validate_host(host), errors);
        }
        let secret = text(tls, "/secretName");
        if !secret.is_empty() {
            let result = validate_dns1123_subdomain(secret);
            report_invalid(format!("{field}.secretName"), secret, result, errors);
        }
    }
    if let Some(class) = get(spec, "/ingressClassName").as_str() {
        let result = validate_dns1123_subdomain(class);
        report_invalid("spec.ingressClassName", class, result, errors);
    }
}

fn validate_rule_host(field: &str, host: &str, errors: &mut Vec<FieldError>) {
    if host.is_empty() {
        return;
    }
    if parse_sloppy(host).is_some() {
        let detail = "must be a DNS name, not an IP address";
        errors.push(FieldError::invalid(field, &host.into(), detail));
    }
    report_invalid(field, host, validate_host(host), errors);
}

fn validate_host(host: &str) -> Result<(), String> {
    if !host.contains('*') {
        return validate_dns1123_subdomain(host);
    }
    let name = host.strip_prefix("*.").unwrap_or("");
    validate_dns1123_subdomain(name).map_err(|_| INVALID_WILDCARD.to_owned())
}

fn validate_http_path(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let path = text(entry, "/path");
    let field_path = format!("{field}.path");
    let kind = get(entry, "/pathType");
    if kind.is_null() {
        errors.push(FieldError::required(
            format!("{field}.pathType"),
            "pathType must be specified",
        ));
        return;
    }
    let mut refuse =
        |detail: String| errors.push(FieldError::invalid(&field_path, &path.into(), detail));
    let is_absolute = path.starts_with('/');
    match kind.as_str().unwrap_or("") {
        "Exact" | "Prefix" => {
            if !is_absolute {
                refuse("must be an absolute path".into());
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.contains(part) {
                    refuse(format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if path.ends_with(end) {
                    refuse(format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !is_absolute {
                refuse("must be an absolute path".into());
            }
        }
        _ => errors.push(FieldError::not_supported(
            format!("{field}.pathType"),
            kind,
            &PATH_TYPES,
        )),
    }
    validate_backend(&format!("{field}.backend"), get(entry, "/backend"), errors);
}

fn validate_backend(field: &str, backend: &Value, errors: &mut Vec<FieldError>) {
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, &"".into(), detail));
    match (has(backend, "/service"), has(backend, "/resource")) {
        (true, true) => refuse("cannot set both resource and service backends"),
        (false, false) => refuse("resource or service backend is required"),
        (false, true) => {
            let resource = get(backend, "/resource");
            validate_typed_reference(&format!("{field}.resource"), resource, errors);
        }
        (true, false) => validate_service(field, get(backend, "/service"), errors),
    }
}

fn validate_service(field: &str, service: &Value, errors: &mut Vec<FieldError>) {
    let name = text(service, "/name");
    let path = format!("{field}.service.name");
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        report_invalid(path, name, validate_dns1123_label(name), errors);
    }
    let port = text(service, "/port/name");
    let number = int(service, "/port/number").unwrap_or(0);
    match (port, number) {
        ("", 0) => errors.push(FieldError::required(
            field,
            "port name or number is required",
        )),
        ("", number) => validate_port(format!("{field}.service.port.number"), number, errors),
        (port, 0) => {
            let path = format!("{field}.service.port.name");
            report_invalid(path, port, validate_port_name(port), errors);
        }
        _ => errors.push(FieldError::invalid(
            field,
            &"".into(),
            "cannot set both port name & port number",
        )),
    }
}
