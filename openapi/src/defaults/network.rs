//! Defaults of Services, Endpoints, EndpointSlices, IngressClasses and NetworkPolicies
//! (Kubernetes `pkg/apis/{core,networking,discovery}/v1/defaults.go`; for IP families,
//! `pkg/registry/core/service/storage/alloc.go` of a single-stack cluster).

use serde_json::{Value, json};

use super::{
    JsonObjectMap, for_each_object, is_empty, is_unset, set_default, set_default_number,
    string_field, with_object, with_object_or_create,
};

pub(super) fn set_defaults_service(service: &mut JsonObjectMap) {
    with_object_or_create(service, "spec", |spec| {
        set_default(spec, "sessionAffinity", "None");
        set_default(spec, "type", "ClusterIP");
        set_defaults_session_affinity(spec);
        for_each_object(spec, "ports", set_defaults_service_port);
        let kind = string_field(spec, "type").to_owned();
        if kind == "ExternalName" {
            return;
        }
        set_default(spec, "internalTrafficPolicy", "Cluster");
        let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
            || (kind == "ClusterIP" && !is_empty(spec, "externalIPs"));
        if external {
            set_default(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            set_default(spec, "allocateLoadBalancerNodePorts", true);
        }
        set_defaults_ip_families(spec);
    });
}

fn set_defaults_session_affinity(spec: &mut JsonObjectMap) {
    match string_field(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => with_object_or_create(spec, "sessionAffinityConfig", |config| {
            with_object_or_create(config, "clientIP", |client| {
                set_default(client, "timeoutSeconds", 10_800);
            });
        }),
        _ => {}
    }
}

fn set_defaults_service_port(port: &mut JsonObjectMap) {
    set_default(port, "protocol", "TCP");
    let target_is_zero = port.get("targetPort").and_then(Value::as_i64) == Some(0);
    if (target_is_zero || is_unset(port, "targetPort"))
        && let Some(number) = port.get("port").cloned()
    {
        port.insert("targetPort".into(), number);
    }
}

/// Sets IP families and their policy as in a single-stack IPv4 cluster, consistent with an
/// address that is set already.
fn set_defaults_ip_families(spec: &mut JsonObjectMap) {
    let address = string_field(spec, "clusterIP").to_owned();
    if !address.is_empty() && is_empty(spec, "clusterIPs") {
        spec.insert("clusterIPs".into(), json!([address]));
    }
    // A headless service without selector has endpoints outside of this cluster's address
    // ranges, so it may have both families.
    if address == "None" && is_empty(spec, "selector") {
        set_default(spec, "ipFamilyPolicy", "RequireDualStack");
    } else {
        set_default(spec, "ipFamilyPolicy", "SingleStack");
    }
    let first = if address.contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
    if is_empty(spec, "ipFamilies") {
        spec.insert("ipFamilies".into(), json!([first]));
    }
    let has_both = address == "None"
        && is_empty(spec, "selector")
        && string_field(spec, "ipFamilyPolicy") != "SingleStack";
    if let (true, Some(Value::Array(list))) = (has_both, spec.get_mut("ipFamilies"))
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

pub(super) fn set_defaults_endpoints(endpoints: &mut JsonObjectMap) {
    for_each_object(endpoints, "subsets", |subset| {
        for_each_object(subset, "ports", |port| set_default(port, "protocol", "TCP"));
    });
}

pub(super) fn set_defaults_endpoint_slice(slice: &mut JsonObjectMap) {
    for_each_object(slice, "ports", |port| {
        set_default(port, "name", "");
        set_default(port, "protocol", "TCP");
    });
}

pub(super) fn set_defaults_ingress_class(class: &mut JsonObjectMap) {
    with_object(class, "spec", |spec| {
        with_object(spec, "parameters", |parameters| {
            set_default(parameters, "scope", "Cluster");
        });
    });
}

pub(super) fn set_defaults_network_policy(policy: &mut JsonObjectMap) {
    with_object_or_create(policy, "spec", |spec| {
        for list in ["ingress", "egress"] {
            for_each_object(spec, list, |rule| {
                for_each_object(rule, "ports", |port| set_default(port, "protocol", "TCP"));
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
pub(super) fn set_defaults_webhook_service(service: &mut JsonObjectMap) {
    set_default_number(service, "port", 443);
}
