//! Validates the addresses of a Service: cluster IPs and their families, external IPs, and the
//! sources that a load balancer admits.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::Value;

use super::ip_addresses::{family, validate_address, validate_cidr, validate_non_special};
use crate::unstructured::{get, has, index_path, items, text, texts};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["SingleStack", "PreferDualStack", "RequireDualStack"];
/// Kubernetes' errors call the field so.
const SOURCE_RANGES_FIELD: &str = "spec.LoadBalancerSourceRanges";
const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn validate(new: &Value, old: Option<&Value>, kind: &str, errors: &mut Vec<FieldError>) {
    let spec = get(new, "/spec");
    let old_spec = old.map_or(&Value::Null, |old| get(old, "/spec"));
    if kind != "ExternalName" {
        validate_families(spec, errors);
        validate_cluster_ips(spec, old_spec, errors);
    }
    let old_addresses = items(old_spec, "/externalIPs");
    for (i, address) in items(spec, "/externalIPs").iter().enumerate() {
        let field = index_path("spec.externalIPs", i);
        let address = address.as_str().unwrap_or("");
        if let Some(address) = validate_address(&field, address, old_addresses, errors) {
            validate_non_special(&field, address, errors);
        }
    }
    validate_source_ranges(new, old, kind, errors);
}

/// Validates the sources that a load balancer admits, which the field or an annotation lists.
fn validate_source_ranges(
    new: &Value,
    old: Option<&Value>,
    kind: &str,
    errors: &mut Vec<FieldError>,
) {
    let annotation = |object: &Value| {
        let annotations = get(object, "/metadata/annotations");
        annotations.get(SOURCE_RANGES_ANNOTATION).cloned()
    };
    let listed = items(new, "/spec/loadBalancerSourceRanges");
    let by_annotation = annotation(new).filter(|_| listed.is_empty());
    let field = match by_annotation {
        Some(_) => format!("metadata.annotations[{SOURCE_RANGES_ANNOTATION}]"),
        None if listed.is_empty() => return,
        None => SOURCE_RANGES_FIELD.to_owned(),
    };
    if kind != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(&field, detail));
    }
    if let Some(ranges) = by_annotation {
        if old.and_then(annotation) == Some(ranges.clone()) {
            return;
        }
        let ranges = ranges.as_str().unwrap_or("").trim();
        for range in ranges.split(',').filter(|_| !ranges.is_empty()) {
            validate_cidr(&field, range.trim(), &[], errors);
        }
        return;
    }
    let old_ranges = old.map_or(&[][..], |old| items(old, "/spec/loadBalancerSourceRanges"));
    for (i, range) in listed.iter().enumerate() {
        let field = index_path(&field, i);
        validate_cidr(
            &field,
            range.as_str().unwrap_or("").trim(),
            old_ranges,
            errors,
        );
    }
}

fn validate_cluster_ips(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.clusterIPs";
    let first = text(spec, "/clusterIP");
    let list = get(spec, "/clusterIPs");
    let listed: Vec<&str> = match items(spec, "/clusterIPs") {
        [] => Some(first)
            .filter(|first| !first.is_empty())
            .into_iter()
            .collect(),
        _ => texts(spec, "/clusterIPs").collect(),
    };
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(field, list, detail));
    if listed.first().is_some_and(|listed| *listed != first) {
        refuse(match first {
            "" => "must be empty when `clusterIP` is not specified",
            _ => "first value must match `clusterIP`",
        });
    }
    let old_addresses = items(old, "/clusterIPs");
    let before = errors.len();
    let mut addresses = Vec::new();
    for (i, address) in listed.iter().enumerate() {
        if i == 0 && *address == "None" {
            if listed.len() > 1 {
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid(field, list, detail));
            }
            continue;
        }
        addresses.extend(validate_address(
            &index_path(field, i),
            address,
            old_addresses,
            errors,
        ));
    }
    let is_valid = errors.len() == before;
    if listed.len() > FAMILIES.len() {
        let detail = "may only hold up to 2 values";
        errors.push(FieldError::invalid(field, list, detail));
    }
    let families: Vec<&str> = addresses.iter().map(family).collect();
    let is_mixed = families.contains(&"IPv4") && families.contains(&"IPv6");
    if is_valid && listed.len() > 1 && !is_mixed {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(field, list, detail));
    }
    let declared = texts(spec, "/ipFamilies").enumerate().filter(|_| is_valid);
    for ((i, declared), actual) in declared.zip(families) {
        if FAMILIES.contains(&declared) && declared != actual {
            let detail = format!("expected an {declared} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(
                index_path(field, i),
                &listed[i].into(),
                detail,
            ));
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
