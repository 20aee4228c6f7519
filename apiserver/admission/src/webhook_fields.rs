//! Validates the fields that webhook configurations of Kubernetes and Karmada share: names
//! and client configurations (`apiserver/pkg/util/webhook/validation.go`).

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::Value;

use crate::unstructured::{get, has, int, text};
use crate::url;

/// Requires a domain of at least two segments; a trailing dot is allowed.
pub(crate) fn validate_webhook_name(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut refuse = |value: &str, detail: &str| {
        errors.push(FieldError::invalid(field, &value.into(), detail));
    };
    if let Err(detail) = validate_dns1123_subdomain(name) {
        return refuse(name, &detail);
    }
    if !name.contains('.') {
        return refuse(
            name,
            "should be a domain with at least two segments separated by dots",
        );
    }
    for label in name.split('.') {
        if let Err(detail) = validate_dns1123_label(label) {
            refuse(label, &detail);
        }
    }
}

pub(crate) fn validate_client_config(field: &str, config: &Value, errors: &mut Vec<FieldError>) {
    let by_url = has(config, "/url");
    if by_url == has(config, "/service") {
        let detail = "exactly one of url or service is required";
        errors.push(FieldError::required(field, detail));
    } else if by_url {
        validate_webhook_url(&format!("{field}.url"), text(config, "/url"), errors);
    } else {
        validate_service_reference(&format!("{field}.service"), get(config, "/service"), errors);
    }
}

fn validate_webhook_url(field: &str, address: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "desired format: https://host[/path]";
    let parts = url::split_url(address).unwrap_or_default();
    let mut refuse = |value: &str, detail: String| {
        errors.push(FieldError::invalid(field, &value.into(), detail))
    };
    if parts.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme; {FORM}");
        refuse(parts.scheme, detail);
    }
    if parts.host.is_empty() {
        refuse("", format!("host must be specified; {FORM}"));
    }
    let forbidden_parts = [
        (parts.user, "user information is not permitted in the URL"),
        (
            Some(parts.fragment).filter(|f| !f.is_empty()),
            "fragments are not permitted in the URL",
        ),
        (
            Some(parts.query).filter(|q| !q.is_empty()),
            "query parameters are not permitted in the URL",
        ),
    ];
    for (part, detail) in forbidden_parts {
        if let Some(part) = part {
            refuse(part, detail.to_owned());
        }
    }
}

fn validate_service_reference(field: &str, service: &Value, errors: &mut Vec<FieldError>) {
    for part in ["name", "namespace"] {
        if text(service, &format!("/{part}")).is_empty() {
            errors.push(FieldError::required(format!("{field}.{part}"), ""));
        }
    }
    let port = int(service, "/port").unwrap_or(443);
    if !(1..=65_535).contains(&port) {
        errors.push(FieldError::invalid(
            format!("{field}.port"),
            &port.into(),
            "port is not valid: must be between 1 and 65535, inclusive",
        ));
    }
    validate_service_path(&format!("{field}.path"), text(service, "/path"), errors);
}

/// Requires segments to be DNS-1123 subdomains; a trailing slash is allowed.
fn validate_service_path(field: &str, path: &str, errors: &mut Vec<FieldError>) {
    if matches!(path, "" | "/") {
        return;
    }
    let mut refuse = |detail: String| errors.push(FieldError::invalid(field, &path.into(), detail));
    if path == "//" {
        return refuse("segment[0] may not be empty".into());
    }
    if !path.starts_with('/') {
        refuse("must start with a '/'".into());
    }
    let mut steps = path.chars();
    steps.next();
    let steps = steps.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps);
    for (i, step) in steps.split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{i}] may not be empty"));
        } else if let Err(detail) = validate_dns1123_subdomain(step) {
            refuse(format!("segment[{i}]: {detail}"));
        }
    }
}
