//! Validates the containers of a pod template.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::numbers::validate_port;
use crate::resource_list::{self, ResourceListKind};
use crate::unstructured::{entries, get, has, index_path, int, items, report_invalid, text};

/// `spec` is the pod spec, `field` its path, `volumes` the names that may be mounted.
pub(super) fn validate(
    field: &str,
    spec: &Value,
    volumes: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    if items(spec, "/containers").is_empty() {
        errors.push(FieldError::required(format!("{field}.containers"), ""));
    }
    let mut names = HashSet::new();
    for list in ["initContainers", "containers"] {
        for (i, container) in items(spec, &format!("/{list}")).iter().enumerate() {
            let at = index_path(&format!("{field}.{list}"), i);
            validate_container(&at, container, volumes, errors);
            let name = text(container, "/name");
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
        }
    }
}

fn validate_container(
    field: &str,
    container: &Value,
    volumes: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(container, "/name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    } else {
        report_invalid(
            format!("{field}.name"),
            name,
            validate_dns1123_label(name),
            errors,
        );
    }
    let image = text(container, "/image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{field}.image"), ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(
            format!("{field}.image"),
            &image.into(),
            "must not have leading or trailing whitespace",
        ));
    }
    validate_ports(field, container, errors);
    validate_env(field, container, errors);
    validate_volume_mounts(field, container, volumes, errors);
    validate_resources(field, get(container, "/resources"), errors);
}

fn validate_ports(field: &str, container: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (i, entry) in items(container, "/ports").iter().enumerate() {
        let at = index_path(&format!("{field}.ports"), i);
        match int(entry, "/containerPort") {
            None | Some(0) => {
                errors.push(FieldError::required(format!("{at}.containerPort"), ""));
            }
            Some(number) => validate_port(format!("{at}.containerPort"), number, errors),
        }
        if let Some(number) = int(entry, "/hostPort").filter(|n| *n != 0) {
            validate_port(format!("{at}.hostPort"), number, errors);
        }
        let name = text(entry, "/name");
        if !name.is_empty() {
            report_invalid(format!("{at}.name"), name, validate_port_name(name), errors);
            if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
        }
        validate_protocol(&at, entry, errors);
    }
}

pub(super) fn validate_protocol(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let protocol = text(entry, "/protocol");
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        errors.push(FieldError::not_supported(
            format!("{field}.protocol"),
            &protocol.into(),
            &["SCTP", "TCP", "UDP"],
        ));
    }
}

/// Checks an IANA service name, the form of port names (RFC 6335).
pub(super) fn validate_port_name(name: &str) -> Result<(), String> {
    let bytes = name.as_bytes();
    if bytes.len() > 15 {
        return Err("must be no more than 15 characters".into());
    }
    if !bytes
        .iter()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    {
        return Err(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into(),
        );
    }
    if !bytes.iter().any(u8::is_ascii_lowercase) {
        return Err("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        return Err("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err("must not begin or end with a hyphen".into());
    }
    Ok(())
}

fn validate_env(field: &str, container: &Value, errors: &mut Vec<FieldError>) {
    for (i, variable) in items(container, "/env").iter().enumerate() {
        let at = index_path(&format!("{field}.env"), i);
        let name = text(variable, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else if name.contains('=') || !name.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            errors.push(FieldError::invalid(
                format!("{at}.name"),
                &name.into(),
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            ));
        }
        if has(variable, "/valueFrom") && !text(variable, "/value").is_empty() {
            errors.push(FieldError::invalid(
                format!("{at}.valueFrom"),
                &"".into(),
                "may not be specified when `value` is not empty",
            ));
        }
    }
}

fn validate_volume_mounts(
    field: &str,
    container: &Value,
    volumes: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    let mut paths = HashSet::new();
    for (i, mount) in items(container, "/volumeMounts").iter().enumerate() {
        let at = index_path(&format!("{field}.volumeMounts"), i);
        let name = text(mount, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{at}.name"), &name.into()));
        }
        let path = text(mount, "/mountPath");
        if path.is_empty() {
            errors.push(FieldError::required(format!("{at}.mountPath"), ""));
        } else if !paths.insert(path) {
            errors.push(FieldError::invalid(
                format!("{at}.mountPath"),
                &path.into(),
                "must be unique",
            ));
        }
    }
}

fn validate_resources(field: &str, resources: &Value, errors: &mut Vec<FieldError>) {
    let (limits, requests) = (get(resources, "/limits"), get(resources, "/requests"));
    let base = format!("{field}.resources");
    resource_list::validate_resource_list(
        ResourceListKind::Container,
        &format!("{base}.limits"),
        limits,
        errors,
    );
    resource_list::validate_resource_list(
        ResourceListKind::Container,
        &format!("{base}.requests"),
        requests,
        errors,
    );
    for (key, value) in entries(requests, "") {
        if limits.get(key).is_some()
            && resource_list::resource_quantity(requests, key)
                > resource_list::resource_quantity(limits, key)
        {
            let limit = resource_list::resource_quantity(limits, key);
            errors.push(FieldError::invalid(
                format!("{base}.requests"),
                value,
                format!("must be less than or equal to {key} limit of {limit}"),
            ));
        }
    }
}
