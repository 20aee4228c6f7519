//! Validates how a Service distributes traffic: load balancer class, traffic policies and the port
//! of health checks.

use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use crate::unstructured::{get, has, int, items, non_empty_or, report_invalid, text};

const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameNode", "PreferSameZone"];

pub(super) fn validate(new: &Value, old: Option<&Value>, kind: &str, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    if has(spec, "/allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(
            "spec.allocateLoadBalancerNodePorts",
            "may only be used when `type` is 'LoadBalancer'",
        ));
    }
    validate_load_balancer_class(spec, old, kind, errors);
    let external = text(spec, "/externalTrafficPolicy");
    let is_reachable =
        matches!(kind, "NodePort" | "LoadBalancer") || !items(spec, "/externalIPs").is_empty();
    if !external.is_empty() && !is_reachable {
        errors.push(FieldError::invalid(
            "spec.externalTrafficPolicy",
            &external.into(),
            "may only be set for externally-accessible services",
        ));
    }
    for field in ["externalTrafficPolicy", "internalTrafficPolicy"] {
        validate_choice(spec, field, &TRAFFIC_POLICIES, errors);
    }
    validate_choice(spec, "trafficDistribution", &DISTRIBUTIONS, errors);
    if let Some(port) = int(spec, "/healthCheckNodePort").filter(|port| *port != 0)
        && (kind != "LoadBalancer" || external != "Local")
    {
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

fn validate_load_balancer_class(
    spec: &Value,
    old: Option<&Value>,
    kind: &str,
    errors: &mut Vec<FieldError>,
) {
    let field = "spec.loadBalancerClass";
    let class = text(spec, "/loadBalancerClass");
    let was_balanced = |old: &Value| {
        non_empty_or(text(old, "/spec/type"), "ClusterIP") == "LoadBalancer"
            && get(old, "/spec/loadBalancerClass") != get(spec, "/loadBalancerClass")
    };
    if kind == "LoadBalancer" && old.is_some_and(was_balanced) {
        let why = "may not change once set";
        errors.push(FieldError::invalid(field, &class.into(), why));
    }
    if !has(spec, "/loadBalancerClass") {
        return;
    }
    if kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(
            field,
            "may only be used when `type` is 'LoadBalancer'",
        ));
        return;
    }
    report_invalid(field, class, validate_qualified_name(class), errors);
}
