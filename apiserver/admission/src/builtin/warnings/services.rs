//! Warns of Services (`pkg/api/service/warnings.go`).

use serde_json::Value;

use super::annotations::has_annotation;
use crate::builtin::ip_addresses::{address_warning, cidr_warnings};
use crate::unstructured::{get, items, non_empty_or, text};

const TOPOLOGY_HINTS_ANNOTATION: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE_ANNOTATION: &str = "service.kubernetes.io/topology-mode";

pub(super) fn service(service: &Value, out: &mut Vec<String>) {
    if has_annotation(service, TOPOLOGY_HINTS_ANNOTATION) {
        out.push(format!(
            "annotation {TOPOLOGY_HINTS_ANNOTATION} is deprecated, please use \
             {TOPOLOGY_MODE_ANNOTATION} instead"
        ));
    }
    let spec = get(service, "/spec");
    let kind = non_empty_or(text(spec, "/type"), "ClusterIP");
    let is_headless = kind == "ClusterIP" && text(spec, "/clusterIP") == "None";
    if !matches!(text(spec, "/clusterIP"), "" | "None") {
        warn_of_addresses("clusterIPs", spec, out);
    }
    let has_external = !items(spec, "/externalIPs").is_empty();
    if is_headless {
        warn_of_ignored_fields(spec, has_external, out);
    }
    warn_of_addresses("externalIPs", spec, out);
    if has_external && !is_headless && kind != "ExternalName" {
        let detail = "is deprecated and may no longer be implemented in some clusters";
        out.push(format!("spec.externalIPs {detail}"));
    }
    let balancer = text(spec, "/loadBalancerIP");
    out.extend(address_warning("spec.loadBalancerIP", balancer));
    for (i, range) in items(spec, "/loadBalancerSourceRanges").iter().enumerate() {
        let field = format!("spec.loadBalancerSourceRanges[{i}]");
        out.extend(cidr_warnings(&field, range.as_str().unwrap_or("")));
    }
    if kind == "ExternalName" && has_external {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "/externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "/trafficDistribution") == "PreferClose" {
        out.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
}

fn warn_of_ignored_fields(spec: &Value, has_external: bool, out: &mut Vec<String>) {
    for (field, is_set) in [
        ("loadBalancerIP", !text(spec, "/loadBalancerIP").is_empty()),
        ("externalIPs", has_external),
        (
            "SessionAffinity",
            !matches!(text(spec, "/sessionAffinity"), "" | "None"),
        ),
    ] {
        if is_set {
            out.push(format!("spec.{field} is ignored for headless services"));
        }
    }
}

fn warn_of_addresses(list: &str, spec: &Value, out: &mut Vec<String>) {
    for (i, address) in items(spec, &format!("/{list}")).iter().enumerate() {
        let field = format!("spec.{list}[{i}]");
        out.extend(address_warning(&field, address.as_str().unwrap_or("")));
    }
}
