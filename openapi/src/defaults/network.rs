//! Defaults of Services, Endpoints, EndpointSlices, IngressClasses and NetworkPolicies
//! (Kubernetes `pkg/apis/{core,networking,discovery}/v1/defaults.go`; for IP families,
//! `pkg/registry/core/service/storage/alloc.go` of a single-stack cluster).

use serde_json::{Value, json};

use super::{Fields, each, fill, fill_number, is_empty, text, unset, within, within_new};

pub(super) fn service(service: &mut Fields) {
    within_new(service, "spec", |spec| {
        fill(spec, "sessionAffinity", "None");
        fill(spec, "type", "ClusterIP");
        affinity_config(spec);
        each(spec, "ports", service_port);
        let kind = text(spec, "type").to_owned();
        if kind == "ExternalName" {
            return;
        }
        fill(spec, "internalTrafficPolicy", "Cluster");
        let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
            || (kind == "ClusterIP" && !is_empty(spec, "externalIPs"));
        if external {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
        families(spec);
    });
}

fn affinity_config(spec: &mut Fields) {
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => within_new(spec, "sessionAffinityConfig", |config| {
            within_new(config, "clientIP", |client| {
                fill(client, "timeoutSeconds", 10_800);
            });
        }),
        _ => {}
    }
}

fn service_port(port: &mut Fields) {
    fill(port, "protocol", "TCP");
    let target_is_zero = port.get("targetPort").and_then(Value::as_i64) == Some(0);
    if (target_is_zero || unset(port, "targetPort"))
        && let Some(number) = port.get("port").cloned()
    {
        port.insert("targetPort".into(), number);
    }
}

/// Sets IP families and their policy as in a single-stack IPv4 cluster, consistent with an
/// address that is set already.
fn families(spec: &mut Fields) {
    let address = text(spec, "clusterIP").to_owned();
    if !address.is_empty() && is_empty(spec, "clusterIPs") {
        spec.insert("clusterIPs".into(), json!([address]));
    }
    // A headless service without selector has endpoints outside of this cluster's address
    // ranges, so it may have both families.
    if address == "None" && is_empty(spec, "selector") {
        fill(spec, "ipFamilyPolicy", "RequireDualStack");
    } else {
        fill(spec, "ipFamilyPolicy", "SingleStack");
    }
    let first = if address.contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
    if is_empty(spec, "ipFamilies") {
        spec.insert("ipFamilies".into(), json!([first]));
    }
    let both = address == "None"
        && is_empty(spec, "selector")
        && text(spec, "ipFamilyPolicy") != "SingleStack";
    if let (true, Some(Value::Array(list))) = (both, spec.get_mut("ipFamilies"))
        && list.len() == 1
    {
        let other = if list.first() == Some(&json!("IPv6")) {
            "IPv4"
        } else {
            "IPv6"
        };
        list.push(other.into());
    }
}

pub(super) fn endpoints(endpoints: &mut Fields) {
    each(endpoints, "subsets", |subset| {
        each(subset, "ports", |port| fill(port, "protocol", "TCP"));
    });
}

pub(super) fn endpoint_slice(slice: &mut Fields) {
    each(slice, "ports", |port| {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    });
}

pub(super) fn ingress_class(class: &mut Fields) {
    within(class, "spec", |spec| {
        within(spec, "parameters", |parameters| {
            fill(parameters, "scope", "Cluster");
        });
    });
}

pub(super) fn network_policy(policy: &mut Fields) {
    within_new(policy, "spec", |spec| {
        for list in ["ingress", "egress"] {
            each(spec, list, |rule| {
                each(rule, "ports", |port| fill(port, "protocol", "TCP"));
            });
        }
        if is_empty(spec, "policyTypes") {
            let types = if is_empty(spec, "egress") {
                json!(["Ingress"])
            } else {
                json!(["Ingress", "Egress"])
            };
            spec.insert("policyTypes".into(), types);
        }
    });
}

/// Defaults of a service reference of a webhook, which CRDs and webhook configurations share.
pub(super) fn webhook_service(service: &mut Fields) {
    fill_number(service, "port", 443);
}
