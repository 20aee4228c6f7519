//! Validates Endpoints and EndpointSlice.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain, validate_label_value};
use serde_json::Value;

use super::ip_addresses::{family, parse_sloppy, validate_address, validate_non_special};
use super::numbers::validate_port;
use super::ports::{validate_app_protocol, validate_protocol};
use crate::metadata;
use crate::unstructured::{
    get, has, index_path, int, items, report_invalid, text, validate_immutable_field,
};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_TOPOLOGY_LABELS: usize = 16;
const MAX_HINTS: usize = 8;
const INVALID_DOMAIN: &str = "should be a domain with at least two segments separated by dots";

/// Endpoints that an update leaves as they are stay valid.
pub(super) fn validate_endpoint_slice(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(new, "/addressType");
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !ADDRESS_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(
            "addressType",
            &kind.into(),
            &ADDRESS_TYPES,
        ));
    }
    let endpoints = items(new, "/endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        let error = FieldError::too_many("endpoints", endpoints.len(), MAX_ENDPOINTS);
        errors.push(error);
    } else if old.is_none_or(|old| items(old, "/endpoints") != endpoints) {
        for (i, endpoint) in endpoints.iter().enumerate() {
            validate_endpoint(&index_path("endpoints", i), kind, endpoint, errors);
        }
    }
    validate_slice_ports(items(new, "/ports"), errors);
    if let Some(old) = old {
        validate_immutable_field(new, old, "addressType", errors);
    }
}

fn validate_endpoint(field: &str, kind: &str, endpoint: &Value, errors: &mut Vec<FieldError>) {
    validate_addresses(field, kind, items(endpoint, "/addresses"), errors);
    let node = text(endpoint, "/nodeName");
    if has(endpoint, "/nodeName") {
        let result = validate_dns1123_subdomain(node);
        report_invalid(format!("{field}.nodeName"), node, result, errors);
    }
    let topology = get(endpoint, "/deprecatedTopology");
    let path = format!("{field}.deprecatedTopology");
    let count = topology.as_object().map_or(0, serde_json::Map::len);
    if count > MAX_TOPOLOGY_LABELS {
        errors.push(FieldError::too_many(&path, count, MAX_TOPOLOGY_LABELS));
    }
    metadata::validate_labels(&path, topology, errors);
    let hostname = text(endpoint, "/hostname");
    if has(endpoint, "/hostname") {
        let result = validate_dns1123_label(hostname);
        report_invalid(format!("{field}.hostname"), hostname, result, errors);
    }
    for (list, check) in [
        (
            "forZones",
            validate_label_value as fn(&str) -> Result<(), String>,
        ),
        ("forNodes", validate_dns1123_subdomain),
    ] {
        let hints = items(endpoint, &format!("/hints/{list}"));
        validate_hints(&format!("{field}.hints.{list}"), hints, check, errors);
    }
}

fn validate_hints(
    field: &str,
    hints: &[Value],
    check: fn(&str) -> Result<(), String>,
    errors: &mut Vec<FieldError>,
) {
    if hints.len() > MAX_HINTS {
        errors.push(FieldError::too_many(field, hints.len(), MAX_HINTS));
        return;
    }
    let mut names = HashSet::new();
    for (i, hint) in hints.iter().enumerate() {
        let path = format!("{field}[{i}].name");
        let name = text(hint, "/name");
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&path, &name.into()));
        }
        report_invalid(path, name, check(name), errors);
    }
}

fn validate_addresses(field: &str, kind: &str, addresses: &[Value], errors: &mut Vec<FieldError>) {
    let field = format!("{field}.addresses");
    if addresses.is_empty() {
        let detail = "must contain at least 1 address";
        errors.push(FieldError::required(&field, detail));
    } else if addresses.len() > MAX_ADDRESSES {
        errors.push(FieldError::too_many(&field, addresses.len(), MAX_ADDRESSES));
    }
    for (i, address) in addresses.iter().enumerate() {
        let path = index_path(&field, i);
        let address = address.as_str().unwrap_or("");
        match kind {
            "FQDN" => report_invalid(path, address, validate_domain(address), errors),
            "IPv4" | "IPv6" => {
                let parsed = validate_address(&path, address, &[], errors);
                if parsed.is_some_and(|parsed| family(&parsed) != kind) {
                    let detail = format!("must be an {kind} address");
                    errors.push(FieldError::invalid(&path, &address.into(), detail));
                }
                if let Some(parsed) = parsed {
                    validate_non_special(&path, parsed, errors);
                }
            }
            _ => {}
        }
    }
}

/// Validates a fully qualified domain name, which may end with a dot.
fn validate_domain(name: &str) -> Result<(), String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    validate_dns1123_subdomain(name)?;
    if name.contains('.') {
        return Ok(());
    }
    Err(INVALID_DOMAIN.into())
}

/// Any port number will do.
fn validate_slice_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    if ports.len() > MAX_PORTS {
        errors.push(FieldError::too_many("ports", ports.len(), MAX_PORTS));
        return;
    }
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let field = index_path("ports", i);
        let name = text(port, "/name");
        if !name.is_empty() {
            let result = validate_dns1123_label(name);
            report_invalid(format!("{field}.name"), name, result, errors);
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &name.into()));
        }
        validate_protocol(&field, port, errors);
        validate_app_protocol(&field, port, errors);
    }
}

/// Subsets that an update leaves as they are stay valid.
pub(super) fn validate_endpoints(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let subsets = items(new, "/subsets");
    if old.is_some_and(|old| items(old, "/subsets") == subsets) {
        return;
    }
    for (i, subset) in subsets.iter().enumerate() {
        let field = index_path("subsets", i);
        let lists = ["addresses", "notReadyAddresses"];
        let addresses = lists.map(|list| (list, items(subset, &format!("/{list}"))));
        if addresses.iter().all(|(_, list)| list.is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(&field, detail));
        }
        for (list, addresses) in addresses {
            for (j, address) in addresses.iter().enumerate() {
                validate_endpoint_address(&format!("{field}.{list}[{j}]"), address, errors);
            }
        }
        let ports = items(subset, "/ports");
        for (j, port) in ports.iter().enumerate() {
            let path = index_path(&format!("{field}.ports"), j);
            validate_endpoint_port(&path, port, ports.len() > 1, errors);
        }
    }
}

fn validate_endpoint_address(field: &str, address: &Value, errors: &mut Vec<FieldError>) {
    let path = format!("{field}.ip");
    let ip = text(address, "/ip");
    validate_address(&path, ip, &[], errors);
    let hostname = text(address, "/hostname");
    if !hostname.is_empty() {
        let result = validate_dns1123_label(hostname);
        report_invalid(format!("{field}.hostname"), hostname, result, errors);
    }
    let node = text(address, "/nodeName");
    if has(address, "/nodeName") {
        let result = validate_dns1123_subdomain(node);
        report_invalid(format!("{field}.nodeName"), node, result, errors);
    }
    if let Some(parsed) = parse_sloppy(ip) {
        validate_non_special(&path, parsed, errors);
    }
}

fn validate_endpoint_port(
    field: &str,
    port: &Value,
    needs_name: bool,
    errors: &mut Vec<FieldError>,
) {
    let name = text(port, "/name");
    if !name.is_empty() {
        let result = validate_dns1123_label(name);
        report_invalid(format!("{field}.name"), name, result, errors);
    } else if needs_name {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    let number = int(port, "/port").unwrap_or(0);
    validate_port(format!("{field}.port"), number, errors);
    validate_protocol(field, port, errors);
    validate_app_protocol(field, port, errors);
}
