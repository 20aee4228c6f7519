//! Validates pods and pod templates.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1123_label;
use serde_json::Value;

use super::containers;
use crate::unstructured::{
    get, index_path, int, items, items_mut, non_empty_or, pointer, report_invalid, text,
};

/// `field` is the dotted path of a pod spec in `object`, `policies` are its allowed
/// restart policies.
pub(super) fn validate(
    field: &str,
    object: &Value,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let spec = get(object, &pointer(field));
    let mut volumes = HashSet::new();
    for (i, volume) in items(spec, "/volumes").iter().enumerate() {
        let at = format!("{}.name", index_path(&format!("{field}.volumes"), i));
        let name = text(volume, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        report_invalid(&at, name, validate_dns1123_label(name), errors);
        if !volumes.insert(name) {
            errors.push(FieldError::duplicate(at, &name.into()));
        }
    }
    volumes.extend(claim_template_volumes(object));
    containers::validate(field, spec, &volumes, errors);
    let policy = non_empty_or(text(spec, "/restartPolicy"), "Always");
    if !policies.contains(&policy) {
        errors.push(FieldError::not_supported(
            format!("{field}.restartPolicy"),
            &policy.into(),
            policies,
        ));
    }
}

/// The volumes that a StatefulSet creates for each of its pods.
fn claim_template_volumes(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/spec/volumeClaimTemplates")
        .iter()
        .map(|claim| text(claim, "/metadata/name"))
}

/// Kubernetes' error for an update of immutable pod fields.
const POD_UPDATE_FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate_pod(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate("spec", new, &["Always", "OnFailure", "Never"], errors);
    let Some(old) = old else {
        return;
    };
    let (was, is) = (get(old, "/spec"), get(new, "/spec"));
    if was != is && immutable_pod_spec(was, was) != immutable_pod_spec(is, was) {
        errors.push(FieldError::forbidden("spec", POD_UPDATE_FORBIDDEN));
    }
    let tolerations = items(was, "/tolerations");
    if !tolerations
        .iter()
        .all(|t| items(is, "/tolerations").contains(t))
    {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

/// The pod spec without its mutable fields.
fn immutable_pod_spec(spec: &Value, was: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in items_mut(&mut spec, &format!("/{list}")) {
            if let Some(map) = container.as_object_mut() {
                map.remove("image");
            }
        }
    }
    if let Some(map) = spec.as_object_mut() {
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            map.remove(field);
        }
        let grace = "terminationGracePeriodSeconds";
        if int(was, "/terminationGracePeriodSeconds").is_some_and(|s| s < 0) {
            map.remove(grace);
        }
    }
    spec
}
