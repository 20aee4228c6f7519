//! Validates PriorityClass.

use machinery::FieldError;
use serde_json::Value;

use crate::unstructured::{flag, get, int, text, validate_immutable_field};

/// Highest value of a user-defined class; system classes are above.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PRIORITY_CLASSES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

const PREEMPTION_POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

pub(super) fn validate_priority_class(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(new, "/metadata/name");
    let value = int(new, "/value").unwrap_or(0);
    if name.starts_with("system-") {
        if let Err(detail) = check_system_class(name, value, flag(new, "/globalDefault")) {
            errors.push(FieldError::forbidden(
                "metadata.name",
                &format!("priority class names with 'system-' prefix are reserved for system use only. error: {detail}"),
            ));
        }
    } else if value > HIGHEST_USER_PRIORITY {
        errors.push(FieldError::forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"),
        ));
    }
    let policy = get(new, "/preemptionPolicy");
    if policy == "" {
        errors.push(FieldError::required("preemptionPolicy", ""));
    } else if !policy.is_null()
        && !PREEMPTION_POLICIES
            .iter()
            .any(|supported_policy| policy == supported_policy)
    {
        errors.push(FieldError::not_supported(
            "preemptionPolicy",
            policy,
            &PREEMPTION_POLICIES,
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

/// Requires the class to be one of the system's own.
fn check_system_class(name: &str, value: i64, is_default: bool) -> Result<(), String> {
    let mut classes = SYSTEM_PRIORITY_CLASSES.iter();
    match classes.find(|(class_name, _)| *class_name == name) {
        None => Err(format!("{name} is not a known system priority class")),
        Some((_, fixed)) if *fixed != value => {
            Err(format!("value of {name} PriorityClass must be {fixed}"))
        }
        Some(_) if is_default => Err(format!(
            "globalDefault of {name} PriorityClass must be false"
        )),
        Some(_) => Ok(()),
    }
}

/// The error of a PriorityClass that would be a second global default.
pub(crate) fn conflicting_global_default(new: &Value, other_classes: &[Value]) -> Option<String> {
    if !flag(new, "/globalDefault") {
        return None;
    }
    let name = text(new, "/metadata/name");
    let rival = other_classes
        .iter()
        .find(|other| flag(other, "/globalDefault") && text(other, "/metadata/name") != name)?;
    Some(format!(
        "PriorityClass {} is already marked as default. Only one default can exist",
        text(rival, "/metadata/name")
    ))
}
