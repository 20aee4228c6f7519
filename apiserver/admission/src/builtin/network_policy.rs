//! Validates NetworkPolicy and IngressClass.

use machinery::FieldError;
use serde_json::Value;

use super::ip_addresses::{contains, validate_cidr};
use super::numbers::validate_port;
use super::ports::{validate_port_name, validate_protocol};
use crate::cluster_affinity;
use crate::unstructured::{
    get, has, index_path, int, items, report_invalid, text, validate_immutable_field,
};

pub(super) fn validate_network_policy(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(new, "/spec");
    let selector = get(spec, "/podSelector");
    cluster_affinity::validate_label_selector("spec.podSelector", selector, errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let known = old.map_or(&Value::Null, |old| get(old, "/spec"));
        let known = known_cidrs(items(known, &format!("/{rules}")), peers);
        for (i, rule) in items(spec, &format!("/{rules}")).iter().enumerate() {
            let field = index_path(&format!("spec.{rules}"), i);
            for (j, port) in items(rule, "/ports").iter().enumerate() {
                validate_policy_port(&index_path(&format!("{field}.ports"), j), port, errors);
            }
            for (j, peer) in items(rule, &format!("/{peers}")).iter().enumerate() {
                let at = index_path(&format!("{field}.{peers}"), j);
                validate_peer(&at, peer, &known, errors);
            }
        }
    }
    let types = items(spec, "/policyTypes");
    if types.len() > 2 {
        let all = get(spec, "/policyTypes");
        let why = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid("spec.policyTypes", all, why));
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let field = index_path("spec.policyTypes", i);
            errors.push(FieldError::not_supported(
                field,
                kind,
                &["Egress", "Ingress"],
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
    validate_protocol(field, entry, errors);
    let port = get(entry, "/port");
    match port {
        Value::Number(number) => validate_port(
            format!("{field}.port"),
            number.as_i64().unwrap_or(0),
            errors,
        ),
        Value::String(name) => {
            report_invalid(
                format!("{field}.port"),
                name,
                validate_port_name(name),
                errors,
            );
        }
        _ => {}
    }
    let Some(end) = int(entry, "/endPort") else {
        return;
    };
    let why = match port {
        Value::Null => "may not be specified when `port` is not specified",
        Value::String(_) => "may not be specified when `port` is non-numeric",
        port if port.as_i64().is_some_and(|port| end < port) => {
            "must be greater than or equal to `port`"
        }
        _ => return,
    };
    errors.push(FieldError::invalid(
        format!("{field}.endPort"),
        &end.into(),
        why,
    ));
}

fn validate_peer(field: &str, peer: &Value, known: &[Value], errors: &mut Vec<FieldError>) {
    let mut count = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        let value = get(peer, &format!("/{selector}"));
        count += usize::from(!value.is_null());
        let at = format!("{field}.{selector}");
        cluster_affinity::validate_label_selector(&at, value, errors);
    }
    if !has(peer, "/ipBlock") {
        if count == 0 {
            errors.push(FieldError::required(field, "must specify a peer"));
        }
        return;
    }
    if count > 0 {
        let why = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(field, why));
    }
    let cidr = text(peer, "/ipBlock/cidr");
    let field = format!("{field}.ipBlock");
    if cidr.is_empty() {
        errors.push(FieldError::required(format!("{field}.cidr"), ""));
        return;
    }
    let is_valid = validate_cidr(&format!("{field}.cidr"), cidr, known, errors);
    for (i, except) in items(peer, "/ipBlock/except").iter().enumerate() {
        let at = index_path(&format!("{field}.except"), i);
        let except = except.as_str().unwrap_or("");
        if validate_cidr(&at, except, known, errors) && is_valid && !contains(cidr, except) {
            let why = "must be a strict subset of `cidr`";
            errors.push(FieldError::invalid(at, &except.into(), why));
        }
    }
}

pub(super) fn validate_ingress_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let parameters = get(new, "/spec/parameters");
    if !parameters.is_null() {
        let field = "spec.parameters";
        for name in ["kind", "name"] {
            if text(parameters, &format!("/{name}")).is_empty() {
                errors.push(FieldError::required(format!("{field}.{name}"), name));
            }
        }
        let scope = text(parameters, "/scope");
        match (scope, has(parameters, "/namespace")) {
            ("Namespace", false) => errors.push(FieldError::required(
                format!("{field}.namespace"),
                "parameters.scope is set to 'Namespace'",
            )),
            ("Cluster", true) => errors.push(FieldError::forbidden(
                format!("{field}.namespace"),
                "parameters.scope is set to 'Cluster'",
            )),
            ("" | "Namespace" | "Cluster", _) => {}
            _ => errors.push(FieldError::not_supported(
                format!("{field}.scope"),
                &scope.into(),
                &["Cluster", "Namespace"],
            )),
        }
    }
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec.controller", errors);
    }
}
