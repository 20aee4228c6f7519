//! Validates Node.

use std::collections::HashSet;

use machinery::FieldError;
use serde_json::{Value, json};

use super::ip_addresses::{family, parse_sloppy, validate_cidr};
use crate::resource_list::validate_amount;
use crate::taints;
use crate::unstructured::{entries, get, index_path, items, text};

const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Kubernetes' errors put the taints of a node there.
const TAINTS_FIELD: &str = "metadata.taints";

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let taints = items(new, "/spec/taints");
    taints::validate(TAINTS_FIELD, taints, &TAINT_EFFECTS, render_taint, errors);
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in entries(new, &format!("/status/{list}")) {
            let field = format!("status.{list}.{resource}");
            validate_amount(&field, resource, amount, errors);
        }
    }
    validate_pod_networks(new, old, errors);
    if let Some(old) = old {
        validate_update(new, old, errors);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut addresses = HashSet::new();
    for (i, address) in items(new, "/status/addresses").iter().enumerate() {
        let type_and_address = (text(address, "/type"), text(address, "/address"));
        if !addresses.insert(type_and_address) {
            let field = index_path("status.addresses", i);
            errors.push(FieldError::duplicate(field, address));
        }
    }
    for (field, path) in [
        ("podCIDR", "/spec/podCIDRs"),
        ("providerID", "/spec/providerID"),
    ] {
        let old_value = get(old, path);
        let is_set = old_value.as_array().is_some_and(|list| !list.is_empty())
            || old_value.as_str().is_some_and(|id| !id.is_empty());
        if is_set && get(new, path) != old_value {
            let detail = format!("node updates may not change {field} except from \"\" to valid");
            let field = path.trim_start_matches('/').replace('/', ".");
            errors.push(FieldError::forbidden(field, &detail));
        }
    }
    if text(new, "/spec/externalID") != text(old, "/spec/externalID") {
        errors.push(FieldError::forbidden(
            "spec.externalID",
            "may not be updated",
        ));
    }
}

/// The form of Kubernetes' own type, whose fields have no JSON names.
fn render_taint(taint: &Value) -> String {
    json!({
        "Key": text(taint, "/key"),
        "Value": text(taint, "/value"),
        "Effect": text(taint, "/effect"),
        "TimeAdded": get(taint, "/timeAdded"),
    })
    .to_string()
}

fn validate_pod_networks(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let field = "spec.podCIDRs";
    let networks = items(new, "/spec/podCIDRs");
    let old_cidrs = old.map_or(&[][..], |old| items(old, "/spec/podCIDRs"));
    for (i, network) in networks.iter().enumerate() {
        let network = network.as_str().unwrap_or("");
        validate_cidr(&index_path(field, i), network, old_cidrs, errors);
    }
    let families = networks.iter().filter_map(|network| {
        let (address, _) = network.as_str()?.split_once('/')?;
        parse_sloppy(address).map(|address| family(&address))
    });
    let families: Vec<&str> = families.collect();
    let repeated = families.len() == 2 && families[0] == families[1];
    if networks.len() > 2 || repeated {
        errors.push(FieldError::invalid(
            field,
            &networks.into(),
            "may specify no more than one CIDR for each IP family",
        ));
    }
    for (i, network) in networks.iter().enumerate() {
        if networks[..i].contains(network) {
            errors.push(FieldError::duplicate(index_path(field, i), network));
        }
    }
}
