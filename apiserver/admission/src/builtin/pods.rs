//! Pods and pod templates.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::dns1123_label;
use serde_json::Value;

use super::containers;
use crate::tree::{check, get, items, not_empty_or, nth, pointer, text};

/// `field`: the dotted path of a pod spec in `object`; `policies`: the restart
/// policies that make sense there.
pub(super) fn validate(
    field: &str,
    object: &Value,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let spec = get(object, &pointer(field));
    let mut volumes = HashSet::new();
    for (i, volume) in items(spec, "/volumes").iter().enumerate() {
        let at = format!("{}.name", nth(&format!("{field}.volumes"), i));
        let name = text(volume, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        check(&at, name, dns1123_label(name), errors);
        if !volumes.insert(name) {
            errors.push(FieldError::duplicate(at, &name.into()));
        }
    }
    volumes.extend(claims(object));
    containers::validate(field, spec, &volumes, errors);
    let policy = not_empty_or(text(spec, "/restartPolicy"), "Always");
    if !policies.contains(&policy) {
        errors.push(FieldError::not_supported(
            format!("{field}.restartPolicy"),
            &policy.into(),
            policies,
        ));
    }
}

/// Volumes that a StatefulSet makes for each of its pods.
fn claims(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/spec/volumeClaimTemplates")
        .iter()
        .map(|claim| text(claim, "/metadata/name"))
}
