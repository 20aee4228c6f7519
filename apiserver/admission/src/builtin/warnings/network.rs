//! Warns of Ingresses, network policies and endpoints.

use serde_json::Value;

use super::annotations::has_annotation;
use crate::builtin::ip_addresses::{address_warning, cidr_warnings};
use crate::unstructured::{get, has, items, text};

const INGRESS_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(super) fn ingress(ingress: &Value, out: &mut Vec<String>) {
    if has_annotation(ingress, INGRESS_CLASS_ANNOTATION) && !has(ingress, "/spec/ingressClassName")
    {
        out.push(format!(
            "annotation {INGRESS_CLASS_ANNOTATION:?} is deprecated, please use \
             'spec.ingressClassName' instead"
        ));
    }
}

pub(super) fn network_policy(policy: &Value, out: &mut Vec<String>) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(policy, &format!("/spec/{rules}")).iter().enumerate() {
            for (j, peer) in items(rule, &format!("/{peers}")).iter().enumerate() {
                let field = format!("spec.{rules}[{i}].{peers}[{j}].ipBlock");
                let block = get(peer, "/ipBlock");
                out.extend(cidr_warnings(
                    &format!("{field}.cidr"),
                    text(block, "/cidr"),
                ));
                for (k, except) in items(block, "/except").iter().enumerate() {
                    let field = format!("{field}.except[{k}]");
                    out.extend(cidr_warnings(&field, except.as_str().unwrap_or("")));
                }
            }
        }
    }
}

pub(super) fn endpoint_slice(slice: &Value, out: &mut Vec<String>) {
    if text(slice, "/addressType") == "FQDN" {
        out.push("addressType: FQDN endpoints are deprecated".to_owned());
        return;
    }
    for (i, endpoint) in items(slice, "/endpoints").iter().enumerate() {
        for (j, address) in items(endpoint, "/addresses").iter().enumerate() {
            let field = format!("endpoints[{i}].addresses[{j}]");
            out.extend(address_warning(&field, address.as_str().unwrap_or("")));
        }
    }
}

pub(super) fn endpoints(endpoints: &Value, out: &mut Vec<String>) {
    for (i, subset) in items(endpoints, "/subsets").iter().enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            for (j, address) in items(subset, &format!("/{list}")).iter().enumerate() {
                let field = format!("subsets[{i}].{list}[{j}].ip");
                out.extend(address_warning(&field, text(address, "/ip")));
            }
        }
    }
}
