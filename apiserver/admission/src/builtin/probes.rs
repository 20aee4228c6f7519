//! Validates what a kubelet does to a container: probes and lifecycle handlers.

use machinery::FieldError;
use serde_json::Value;

use super::numbers::{validate_non_negative_at, validate_port};
use super::ports::validate_port_name;
use crate::unstructured::{get, has, int, items, report_invalid, text};

const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const LIFECYCLE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Validates probes and lifecycle of a container of a pod spec. An init container that ends has
/// none.
pub(super) fn validate(
    field: &str,
    container: &Value,
    spec: &Value,
    must_end: bool,
    errors: &mut Vec<FieldError>,
) {
    for name in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        let value = get(container, &format!("/{name}"));
        let path = format!("{field}.{name}");
        match name {
            _ if value.is_null() => {}
            _ if must_end => errors.push(FieldError::forbidden(
                path,
                "may not be set for init containers without restartPolicy=Always",
            )),
            "lifecycle" => {
                for hook in ["postStart", "preStop"] {
                    let handler = get(value, &format!("/{hook}"));
                    if !handler.is_null() {
                        let path = format!("{path}.{hook}");
                        validate_handler(&path, handler, &LIFECYCLE_HANDLERS, errors);
                        validate_sleep(&path, handler, spec, errors);
                    }
                }
            }
            _ => validate_probe(&path, value, name, errors),
        }
    }
}

fn validate_probe(field: &str, probe: &Value, name: &str, errors: &mut Vec<FieldError>) {
    validate_handler(field, probe, &PROBE_HANDLERS, errors);
    for number in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        validate_non_negative_at(field, probe, number, errors);
    }
    let threshold = int(probe, "/successThreshold").unwrap_or(1);
    if name != "readinessProbe" && threshold != 1 {
        errors.push(FieldError::invalid(
            format!("{field}.successThreshold"),
            &threshold.into(),
            "must be 1",
        ));
    }
    if let Some(grace) = int(probe, "/terminationGracePeriodSeconds") {
        let path = format!("{field}.terminationGracePeriodSeconds");
        if grace <= 0 {
            errors.push(FieldError::invalid(
                &path,
                &grace.into(),
                "must be greater than 0",
            ));
        }
        if name == "readinessProbe" {
            let detail = "must not be set for readinessProbes";
            errors.push(FieldError::invalid(path, &grace.into(), detail));
        }
    }
}

/// Requires exactly one handler, and validates it.
fn validate_handler(field: &str, value: &Value, handlers: &[&str], errors: &mut Vec<FieldError>) {
    let is_set = |handler: &&&str| has(value, &format!("/{handler}"));
    let mut present = handlers.iter().filter(is_set);
    let Some(first) = present.next() else {
        errors.push(FieldError::required(field, "must specify a handler type"));
        return;
    };
    for other in present {
        let detail = "may not specify more than 1 handler type";
        errors.push(FieldError::forbidden(format!("{field}.{other}"), detail));
    }
    let path = format!("{field}.{first}");
    let action = get(value, &format!("/{first}"));
    match *first {
        "exec" if items(action, "/command").is_empty() => {
            errors.push(FieldError::required(format!("{path}.command"), ""));
        }
        "httpGet" => validate_http_get(&path, action, errors),
        "tcpSocket" | "grpc" => validate_port_or_name(&path, get(action, "/port"), errors),
        _ => {}
    }
}

/// Requires that a sleep ends before the pod is killed.
fn validate_sleep(field: &str, handler: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let seconds = int(handler, "/sleep/seconds").unwrap_or(0);
    let Some(grace) = int(spec, "/terminationGracePeriodSeconds") else {
        return;
    };
    if has(handler, "/sleep") && !(0..=grace).contains(&seconds) {
        errors.push(FieldError::invalid(
            format!("{field}.sleep"),
            &seconds.into(),
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
        ));
    }
}

fn validate_http_get(field: &str, action: &Value, errors: &mut Vec<FieldError>) {
    validate_port_or_name(field, get(action, "/port"), errors);
    let scheme = text(action, "/scheme");
    if !matches!(scheme, "" | "HTTP" | "HTTPS") {
        errors.push(FieldError::not_supported(
            format!("{field}.scheme"),
            &scheme.into(),
            &["HTTP", "HTTPS"],
        ));
    }
    for header in items(action, "/httpHeaders") {
        let name = text(header, "/name");
        let is_valid =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_valid {
            errors.push(FieldError::invalid(
                format!("{field}.httpHeaders"),
                &name.into(),
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
            ));
        }
    }
}

fn validate_port_or_name(field: &str, port: &Value, errors: &mut Vec<FieldError>) {
    let field = format!("{field}.port");
    match port {
        Value::String(name) => report_invalid(field, name, validate_port_name(name), errors),
        port => validate_port(field, port.as_i64().unwrap_or(0), errors),
    }
}
