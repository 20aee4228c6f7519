//! Validates NetworkPolicy.

use machinery::FieldError;
use serde_json::Value;

use super::ip_addresses::{contains, validate_cidr};
use super::label_selectors::{SelectorValues, validate_label_selector};
use super::numbers::validate_port;
use super::ports::validate_port_name;
use crate::unstructured::{get, has, index_path, int, items, report_invalid, text};

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

pub(super) fn validate_network_policy(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(new, "/spec");
    let selector = get(spec, "/podSelector");
    let values = SelectorValues::of_old(old.map(|old| get(old, "/spec/podSelector")));
    validate_label_selector("spec.podSelector", selector, values, errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let old_cidrs = old.map_or(&Value::Null, |old| get(old, "/spec"));
        let old_cidrs = known_cidrs(items(old_cidrs, &format!("/{rules}")), peers);
        for (i, rule) in items(spec, &format!("/{rules}")).iter().enumerate() {
            let field = index_path(&format!("spec.{rules}"), i);
            for (j, port) in items(rule, "/ports").iter().enumerate() {
                validate_policy_port(&index_path(&format!("{field}.ports"), j), port, errors);
            }
            for (j, peer) in items(rule, &format!("/{peers}")).iter().enumerate() {
                let path = index_path(&format!("{field}.{peers}"), j);
                validate_peer(&path, peer, &old_cidrs, values, errors);
            }
        }
    }
    let types = items(spec, "/policyTypes");
    if types.len() > 2 {
        let all = get(spec, "/policyTypes");
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid("spec.policyTypes", all, detail));
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let field = index_path("spec.policyTypes", i);
            errors.push(FieldError::not_supported(
                field,
                kind,
                &["Ingress", "Egress"],
            ));
        }
    }
}

/// The networks that the old policy has, which may stay as they are.
fn known_cidrs(rules: &[Value], peers: &str) -> Vec<Value> {
    let peers = rules
        .iter()
        .flat_map(|rule| items(rule, &format!("/{peers}")));
    let blocks = peers.map(|peer| get(peer, "/ipBlock"));
    let of_block = |block| {
        let except = items(block, "/except").iter().cloned();
        except.chain([get(block, "/cidr").clone()])
    };
    blocks.flat_map(of_block).collect()
}

fn validate_policy_port(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let protocol = get(entry, "/protocol");
    if !protocol.is_null()
        && !PROTOCOLS
            .iter()
            .any(|supported_protocol| protocol == supported_protocol)
    {
        let field = format!("{field}.protocol");
        errors.push(FieldError::not_supported(field, protocol, &PROTOCOLS));
    }
    let port = get(entry, "/port");
    let number = port.as_i64();
    if let Some(name) = port.as_str() {
        let result = validate_port_name(name);
        report_invalid(format!("{field}.port"), name, result, errors);
    } else if let Some(number) = number {
        validate_port(format!("{field}.port"), number, errors);
    }
    let Some(end) = int(entry, "/endPort") else {
        return;
    };
    let field = format!("{field}.endPort");
    let detail = match number {
        Some(number) => {
            if end < number {
                let detail = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(&field, &number.into(), detail));
            }
            validate_port(field, end, errors);
            return;
        }
        None if port.is_null() => "may not be specified when `port` is not specified",
        None => "may not be specified when `port` is non-numeric",
    };
    errors.push(FieldError::invalid(field, &end.into(), detail));
}

fn validate_peer(
    field: &str,
    peer: &Value,
    old_cidrs: &[Value],
    values: SelectorValues,
    errors: &mut Vec<FieldError>,
) {
    let mut count = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        let value = get(peer, &format!("/{selector}"));
        count += usize::from(!value.is_null());
        let path = format!("{field}.{selector}");
        validate_label_selector(&path, value, values, errors);
    }
    if !has(peer, "/ipBlock") {
        if count == 0 {
            errors.push(FieldError::required(field, "must specify a peer"));
        }
        return;
    }
    if count > 0 {
        let detail = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(field, detail));
    }
    let cidr = text(peer, "/ipBlock/cidr");
    let field = format!("{field}.ipBlock");
    if cidr.is_empty() {
        errors.push(FieldError::required(format!("{field}.cidr"), ""));
        return;
    }
    let is_valid = validate_cidr(&format!("{field}.cidr"), cidr, old_cidrs, errors);
    for (i, except) in items(peer, "/ipBlock/except").iter().enumerate() {
        let path = index_path(&format!("{field}.except"), i);
        let except = except.as_str().unwrap_or("");
        if validate_cidr(&path, except, old_cidrs, errors) && is_valid && !contains(cidr, except) {
            let detail = "must be a strict subset of `cidr`";
            errors.push(FieldError::invalid(path, &except.into(), detail));
        }
    }
}
