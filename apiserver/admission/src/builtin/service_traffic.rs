//! Validates how a Service distributes traffic: load balancer class, traffic policies and the port
//! of health checks.

use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use super::numbers::validate_port;
use crate::unstructured::{get, has, int, items, report_invalid, text};

const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameNode", "PreferSameZone"];

pub(super) fn validate(new: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    if has(spec, "/allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(
            "spec.allocateLoadBalancerNodePorts",
            "may only be used when `type` is 'LoadBalancer'",
        ));
    }
    validate_load_balancer_class(spec, kind, errors);
    let external = text(spec, "/externalTrafficPolicy");
    if is_reachable(spec, kind) {
        validate_choice(spec, "externalTrafficPolicy", &TRAFFIC_POLICIES, errors);
    } else if !external.is_empty() {
        errors.push(FieldError::invalid(
            "spec.externalTrafficPolicy",
            &external.into(),
            "may only be set for externally-accessible services",
        ));
    }
    validate_health_check_port(spec, kind, errors);
    validate_choice(spec, "internalTrafficPolicy", &TRAFFIC_POLICIES, errors);
    validate_choice(spec, "trafficDistribution", &DISTRIBUTIONS, errors);
}

fn is_reachable(spec: &Value, kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
        || kind == "ClusterIP" && !items(spec, "/externalIPs").is_empty()
}

/// A missing port is allocated.
fn validate_health_check_port(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let Some(port) = int(spec, "/healthCheckNodePort").filter(|port| *port != 0) else {
        return;
    };
    if kind == "LoadBalancer" && text(spec, "/externalTrafficPolicy") == "Local" {
        validate_port("spec.healthCheckNodePort", port, errors);
    } else {
        errors.push(FieldError::invalid(
            "spec.healthCheckNodePort",
            &port.into(),
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ));
    }
}

fn validate_choice(spec: &Value, field: &str, choices: &[&str], errors: &mut Vec<FieldError>) {
    let value = text(spec, &format!("/{field}"));
    if !value.is_empty() && !choices.contains(&value) {
        errors.push(FieldError::not_supported(
            format!("spec.{field}"),
            &value.into(),
            choices,
        ));
    }
}

fn validate_load_balancer_class(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let field = "spec.loadBalancerClass";
    let class = text(spec, "/loadBalancerClass");
    if !has(spec, "/loadBalancerClass") {
        return;
    }
    if kind == "LoadBalancer" {
        report_invalid(field, class, validate_qualified_name(class), errors);
    } else {
        errors.push(FieldError::forbidden(
            field,
            "may only be used when `type` is 'LoadBalancer'",
        ));
    }
}
