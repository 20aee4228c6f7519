//! Validates PriorityClass and StorageClass.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{flag, get, int, text, validate_immutable_field};

/// Highest value of a user-defined class; system classes are above.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PRIORITY_CLASSES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

pub(super) fn validate_priority_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(new, "/metadata/name");
    let value = int(new, "/value").unwrap_or(0);
    if name.starts_with("system-") {
        if !SYSTEM_PRIORITY_CLASSES.contains(&(name, value)) {
            errors.push(FieldError::forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only",
            ));
        }
    } else if value > HIGHEST_USER_PRIORITY {
        errors.push(FieldError::forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"),
        ));
    }
    if let Some(old) = old {
        if int(old, "/value") != int(new, "/value") {
            errors.push(FieldError::forbidden(
                "value",
                "may not be changed in an update.",
            ));
        }
        validate_immutable_field(new, old, "preemptionPolicy", errors);
    }
}

pub(super) fn validate_storage_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    if text(new, "/provisioner").is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    }
    for (field, choices) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        let value = text(new, &format!("/{field}"));
        if !value.is_empty() && !choices.contains(&value) {
            errors.push(FieldError::not_supported(field, &value.into(), &choices));
        }
    }
    let Some(old) = old else {
        return;
    };
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        let path = format!("/{field}");
        if get(new, &path) != get(old, &path) {
            errors.push(FieldError::forbidden(
                field,
                &format!("updates to {field} are forbidden."),
            ));
        }
    }
    validate_immutable_field(new, old, "volumeBindingMode", errors);
}

/// The error of a PriorityClass that would be a second global default.
pub(crate) fn conflicting_global_default(new: &Value, others: &[Value]) -> Option<String> {
    if !flag(new, "/globalDefault") {
        return None;
    }
    let name = text(new, "/metadata/name");
    let rival = others
        .iter()
        .find(|other| flag(other, "/globalDefault") && text(other, "/metadata/name") != name)?;
    Some(format!(
        "PriorityClass {} is already marked as default. Only one default can exist",
        text(rival, "/metadata/name")
    ))
}
