//! Validates Endpoints and EndpointSlice.

use std::collections::HashSet;
use std::net::IpAddr;

use machinery::FieldError;
use machinery::names::{validate_dns1123_label, validate_dns1123_subdomain};
use serde_json::Value;

use super::ip_addresses::{family, validate_address};
use super::numbers::validate_port;
use super::ports::validate_protocol;
use crate::unstructured::{
    get, has, index_path, int, items, report_invalid, text, validate_immutable_field,
};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;

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
        errors.push(FieldError::too_many(
            "endpoints",
            endpoints.len(),
            MAX_ENDPOINTS,
        ));
        return;
    }
    let known = old.map_or(&[][..], |old| items(old, "/endpoints"));
    let known = known
        .iter()
        .flat_map(|endpoint| items(endpoint, "/addresses"));
    let known: Vec<Value> = known.cloned().collect();
    for (i, endpoint) in endpoints.iter().enumerate() {
        let field = index_path("endpoints", i);
        validate_addresses(&field, kind, items(endpoint, "/addresses"), &known, errors);
        let hostname = text(endpoint, "/hostname");
        if has(endpoint, "/hostname") {
            let result = validate_dns1123_label(hostname);
            report_invalid(format!("{field}.hostname"), hostname, result, errors);
        }
    }
    validate_slice_ports(items(new, "/ports"), errors);
    if let Some(old) = old {
        validate_immutable_field(new, old, "addressType", errors);
    }
}

fn validate_addresses(
    field: &str,
    kind: &str,
    addresses: &[Value],
    known: &[Value],
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{field}.addresses");
    if addresses.is_empty() {
        let why = "must contain at least 1 address";
        errors.push(FieldError::required(&field, why));
    } else if addresses.len() > MAX_ADDRESSES {
        errors.push(FieldError::too_many(&field, addresses.len(), MAX_ADDRESSES));
        return;
    }
    for (i, address) in addresses.iter().enumerate() {
        let at = index_path(&field, i);
        let address = address.as_str().unwrap_or("");
        match kind {
            "FQDN" => {
                report_invalid(at, address, validate_dns1123_subdomain(address), errors);
            }
            "IPv4" | "IPv6" => {
                let parsed = validate_address(&at, address, known, errors);
                if parsed.is_some_and(|parsed| family(&parsed) != kind) {
                    let why = format!("must be an {kind} address");
                    errors.push(FieldError::invalid(at, &address.into(), why));
                }
            }
            _ => {}
        }
    }
}

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
        if let Some(number) = int(port, "/port") {
            validate_port(format!("{field}.port"), number, errors);
        }
        validate_protocol(&field, port, errors);
    }
}

pub(super) fn validate_endpoints(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let lists = ["addresses", "notReadyAddresses"];
    let subsets = old.map_or(&[][..], |old| items(old, "/subsets"));
    let known = subsets.iter().flat_map(|subset| {
        let all = lists
            .into_iter()
            .flat_map(|list| items(subset, &format!("/{list}")));
        all.map(|address| get(address, "/ip").clone())
    });
    let known: Vec<Value> = known.collect();
    for (i, subset) in items(new, "/subsets").iter().enumerate() {
        let field = index_path("subsets", i);
        let count: usize = lists
            .map(|list| items(subset, &format!("/{list}")).len())
            .iter()
            .sum();
        if count == 0 {
            let why = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(&field, why));
        }
        for list in lists {
            for (j, address) in items(subset, &format!("/{list}")).iter().enumerate() {
                let at = index_path(&format!("{field}.{list}"), j);
                let _: Option<IpAddr> =
                    validate_address(&format!("{at}.ip"), text(address, "/ip"), &known, errors);
            }
        }
        let ports = items(subset, "/ports");
        for (j, port) in ports.iter().enumerate() {
            let at = index_path(&format!("{field}.ports"), j);
            let name = text(port, "/name");
            if name.is_empty() && ports.len() > 1 {
                errors.push(FieldError::required(format!("{at}.name"), ""));
            }
            let number = int(port, "/port").unwrap_or(0);
            validate_port(format!("{at}.port"), number, errors);
            validate_protocol(&at, port, errors);
        }
    }
}
