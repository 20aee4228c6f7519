//! Validates what an update of a Service may change of its addresses and its load balancer.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{get, int, items, non_empty_or, text};

const CHANGED: &str = "may not change once set";

/// The type of a Service, with its default.
pub(super) fn service_type(service: &Value) -> &str {
    non_empty_or(text(service, "/spec/type"), "ClusterIP")
}

pub(super) fn validate(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (old_spec, new_spec) = (get(old, "/spec"), get(new, "/spec"));
    let is_external = |service| service_type(service) == "ExternalName";
    if !is_external(new) && !is_external(old) {
        validate_cluster_ips(old_spec, new_spec, errors);
        validate_families(old_spec, new_spec, errors);
    }
    let is_balanced = |service| service_type(service) == "LoadBalancer";
    let class = "/loadBalancerClass";
    if is_balanced(new) && is_balanced(old) && get(old_spec, class) != get(new_spec, class) {
        let class = get(new_spec, class);
        errors.push(FieldError::invalid(
            "spec.loadBalancerClass",
            class,
            CHANGED,
        ));
    }
    let is_local = |service| text(service, "/spec/externalTrafficPolicy") == "Local";
    let is_checked = |service| is_balanced(service) && is_local(service);
    let port = |spec| int(spec, "/healthCheckNodePort").unwrap_or(0);
    if is_checked(new) && is_checked(old) && port(old_spec) != port(new_spec) {
        let detail = "field is immutable";
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", detail));
    }
}

/// The addresses of a Service. If it lists none, its only address is `clusterIP`.
fn cluster_ips(spec: &Value) -> Vec<Value> {
    match items(spec, "/clusterIPs") {
        [] => match text(spec, "/clusterIP") {
            "" => Vec::new(),
            first => vec![first.into()],
        },
        listed => listed.to_vec(),
    }
}

fn is_headless(spec: &Value) -> bool {
    text(spec, "/clusterIP") == "None"
}

/// The second address may be given up, if the policy says so, or added.
fn validate_cluster_ips(old_spec: &Value, new_spec: &Value, errors: &mut Vec<FieldError>) {
    if is_headless(old_spec) && is_headless(new_spec) {
        return;
    }
    let (old, new) = (cluster_ips(old_spec), cluster_ips(new_spec));
    let new_value = Value::Array(new.clone());
    let mut refuse = |field: String, detail: &str| {
        errors.push(FieldError::invalid(field, &new_value, detail));
    };
    if old.len() == new.len() {
        for (i, _) in old
            .iter()
            .zip(&new)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
        {
            refuse(format!("spec.clusterIPs[{i}]"), CHANGED);
        }
        return;
    }
    match (old.first(), new.first()) {
        (Some(_), None) => {
            refuse(
                "spec.clusterIPs[0]".into(),
                "primary clusterIP can not be unset",
            );
        }
        (Some(old), Some(new)) if old != new => refuse("spec.clusterIPs[0]".into(), CHANGED),
        _ => {}
    }
    if old.len() > new.len() && new.len() == 1 {
        require_single_stack(new_spec, "clusterIP", errors);
    }
}

fn validate_families(old_spec: &Value, new_spec: &Value, errors: &mut Vec<FieldError>) {
    if is_headless(old_spec) || is_headless(new_spec) {
        return;
    }
    let (old, new) = (
        items(old_spec, "/ipFamilies"),
        items(new_spec, "/ipFamilies"),
    );
    let field = "spec.ipFamilies[0]";
    if new.is_empty() {
        // The families that are left out are kept.
        return;
    }
    let is_changed = old.len() == new.len() && old != new;
    let has_other_first = !old.is_empty() && old.first() != new.first();
    if is_changed || has_other_first {
        errors.push(FieldError::invalid(field, &new.into(), CHANGED));
    }
    if old.len() > new.len() && new.len() == 1 {
        require_single_stack(new_spec, "ipFamily", errors);
    }
}

fn require_single_stack(spec: &Value, released: &str, errors: &mut Vec<FieldError>) {
    if text(spec, "/ipFamilyPolicy") != "SingleStack" {
        errors.push(FieldError::invalid(
            "spec.ipFamilyPolicy",
            get(spec, "/ipFamilyPolicy"),
            format!("must be set to 'SingleStack' when releasing the secondary {released}"),
        ));
    }
}
