//! Validates the containers of a pod template.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::numbers::validate_port;
use super::ports::{validate_port_name, validate_protocol};
use super::{container_resources, env, probes, security_context};
use crate::unstructured::{flag, get, index_path, int, items, non_empty_or, report_invalid, text};

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
            let is_sidecar = text(container, "/restartPolicy") == "Always";
            let must_end = list == "initContainers" && !is_sidecar;
            probes::validate(&at, container, must_end, errors);
            let name = text(container, "/name");
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &name.into()));
            }
        }
    }
    validate_host_ports(field, spec, errors);
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
    env::validate(field, container, errors);
    validate_volume_mounts(field, container, volumes, errors);
    validate_volume_devices(field, container, volumes, errors);
    container_resources::validate(field, get(container, "/resources"), errors);
    security_context::validate_container(field, container, errors);
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
        validate_sub_path(&at, mount, errors);
    }
}

fn validate_sub_path(field: &str, mount: &Value, errors: &mut Vec<FieldError>) {
    let (path, expression) = (text(mount, "/subPath"), text(mount, "/subPathExpr"));
    if !path.is_empty() && !expression.is_empty() {
        errors.push(FieldError::invalid(
            format!("{field}.subPathExpr"),
            &expression.into(),
            "subPathExpr and subPath are mutually exclusive",
        ));
    }
    for (name, path) in [("subPath", path), ("subPathExpr", expression)] {
        let why = if path.starts_with('/') {
            "must be a relative path"
        } else if path.split('/').any(|part| part == "..") {
            "must not contain '..'"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(
            format!("{field}.{name}"),
            &path.into(),
            why,
        ));
    }
}

fn validate_volume_devices(
    field: &str,
    container: &Value,
    volumes: &HashSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    for (i, device) in items(container, "/volumeDevices").iter().enumerate() {
        let at = index_path(&format!("{field}.volumeDevices"), i);
        let name = text(device, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{at}.name"), &name.into()));
        }
        if text(device, "/devicePath").is_empty() {
            errors.push(FieldError::required(format!("{at}.devicePath"), ""));
        }
    }
}

/// Requires the ports of the host to be distinct in a pod, and with `hostNetwork` to be those of
/// the containers.
fn validate_host_ports(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let mut host_ports = HashSet::new();
    for (i, container) in items(spec, "/containers").iter().enumerate() {
        for (j, port) in items(container, "/ports").iter().enumerate() {
            let at = format!("{field}.containers[{i}].ports[{j}]");
            let number = int(port, "/containerPort").unwrap_or(0);
            let host_port = int(port, "/hostPort").unwrap_or(0);
            if flag(spec, "/hostNetwork") && host_port != number {
                errors.push(FieldError::invalid(
                    format!("{at}.containerPort"),
                    &number.into(),
                    "must match `hostPort` when `hostNetwork` is true",
                ));
            }
            let protocol = non_empty_or(text(port, "/protocol"), "TCP");
            let used = format!("{protocol}/{}/{host_port}", text(port, "/hostIP"));
            if host_port != 0 && !host_ports.insert(used.clone()) {
                let field = format!("{at}.hostPort");
                errors.push(FieldError::duplicate(field, &used.into()));
            }
        }
    }
}
