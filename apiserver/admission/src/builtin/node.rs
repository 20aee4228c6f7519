//! Validates Node.

use machinery::FieldError;
use serde_json::{Value, json};

use super::ip_addresses::{family, parse_sloppy, validate_cidr};
use crate::taints;
use crate::unstructured::{get, index_path, items, text};

const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let taints = items(new, "/spec/taints");
    taints::validate(taints, &TAINT_EFFECTS, render_taint, errors);
    validate_pod_networks(new, old, errors);
    let Some(old) = old else {
        return;
    };
    for (field, path) in [
        ("podCIDR", "/spec/podCIDRs"),
        ("providerID", "/spec/providerID"),
    ] {
        let was = get(old, path);
        let is_set = was.as_array().is_some_and(|list| !list.is_empty())
            || was.as_str().is_some_and(|id| !id.is_empty());
        if is_set && get(new, path) != was {
            let why = format!("node updates may not change {field} except from \"\" to valid");
            let field = path.trim_start_matches('/').replace('/', ".");
            errors.push(FieldError::forbidden(field, &why));
        }
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
    let networks = items(new, "/spec/podCIDRs");
    let known = old.map_or(&[][..], |old| items(old, "/spec/podCIDRs"));
    for (i, network) in networks.iter().enumerate() {
        let field = index_path("spec.podCIDRs", i);
        validate_cidr(&field, network.as_str().unwrap_or(""), known, errors);
    }
    let families = networks.iter().filter_map(|network| {
        let (address, _) = network.as_str()?.split_once('/')?;
        parse_sloppy(address).map(|address| family(&address))
    });
    let families: Vec<&str> = families.collect();
    let repeated = families.len() == 2 && families[0] == families[1];
    if networks.len() > 2 || repeated {
        errors.push(FieldError::invalid(
            "spec.podCIDRs",
            &networks.into(),
            "may specify no more than one CIDR for each IP family",
        ));
    }
}
