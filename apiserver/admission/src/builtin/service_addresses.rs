//! Validates the addresses of a Service: cluster IPs and their families, external IPs, and the
//! sources that a load balancer admits.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use super::ip_addresses::{family, validate_address, validate_cidr, validate_non_special};
use crate::unstructured::{get, has, index_path, items, text, texts};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["SingleStack", "PreferDualStack", "RequireDualStack"];
const SOURCE_RANGES_FIELD: &str = "spec.loadBalancerSourceRanges";

pub(super) fn validate(new: &Value, old: Option<&Value>, kind: &str, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    let old_spec = old.map_or(&Value::Null, |old| get(old, "/spec"));
    if kind != "ExternalName" {
        validate_cluster_ips(spec, old_spec, errors);
        validate_families(spec, errors);
    }
    let known = items(old_spec, "/externalIPs");
    for (i, address) in items(spec, "/externalIPs").iter().enumerate() {
        let field = index_path("spec.externalIPs", i);
        let address = address.as_str().unwrap_or("");
        if let Some(address) = validate_address(&field, address, known, errors) {
            validate_non_special(&field, address, errors);
        }
    }
    let ranges = items(spec, "/loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        let why = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(SOURCE_RANGES_FIELD, why));
    }
    let known = items(old_spec, "/loadBalancerSourceRanges");
    for (i, range) in ranges.iter().enumerate() {
        let field = index_path(SOURCE_RANGES_FIELD, i);
        validate_cidr(&field, range.as_str().unwrap_or("").trim(), known, errors);
    }
}

fn validate_cluster_ips(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let first = text(spec, "/clusterIP");
    let listed: Vec<&str> = match items(spec, "/clusterIPs") {
        [] => Some(first)
            .filter(|first| !first.is_empty())
            .into_iter()
            .collect(),
        _ => texts(spec, "/clusterIPs").collect(),
    };
    if listed.first().is_some_and(|listed| *listed != first) {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            get(spec, "/clusterIPs"),
            "first value must match `clusterIP`",
        ));
    }
    if listed.len() > FAMILIES.len() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs",
            get(spec, "/clusterIPs"),
            "may only hold up to 2 values",
        ));
    }
    let known = items(old, "/clusterIPs");
    let (mut addresses, mut families) = (HashSet::new(), HashSet::new());
    for (i, address) in listed.iter().enumerate() {
        let field = index_path("spec.clusterIPs", i);
        if !addresses.insert(*address) {
            errors.push(FieldError::duplicate(&field, &(*address).into()));
        }
        match *address {
            "None" if listed.len() > 1 => errors.push(FieldError::invalid(
                &field,
                &"None".into(),
                "must be empty when `clusterIPs` is set to 'None'",
            )),
            "None" | "" => {}
            _ => {
                if let Some(parsed) = validate_address(&field, address, known, errors)
                    && !families.insert(family(&parsed))
                {
                    let why = "may specify no more than one IP for each IP family";
                    let all = get(spec, "/clusterIPs");
                    errors.push(FieldError::invalid("spec.clusterIPs", all, why));
                }
            }
        }
    }
}

fn validate_families(spec: &Value, errors: &mut Vec<FieldError>) {
    let mut visited = HashSet::new();
    for (i, family) in texts(spec, "/ipFamilies").enumerate() {
        let field = index_path("spec.ipFamilies", i);
        if !FAMILIES.contains(&family) {
            errors.push(FieldError::not_supported(&field, &family.into(), &FAMILIES));
        }
        if !visited.insert(family) {
            errors.push(FieldError::duplicate(&field, &family.into()));
        }
    }
    let policy = text(spec, "/ipFamilyPolicy");
    if has(spec, "/ipFamilyPolicy") && !FAMILY_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(
            "spec.ipFamilyPolicy",
            &policy.into(),
            &FAMILY_POLICIES,
        ));
    }
}
