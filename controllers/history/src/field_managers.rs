//! Reads from the `managedFields` of an object who set one of its fields last.

use machinery::Object;
use serde::Deserialize;
use serde_json::Value;

/// The managers of this control plane: the controllers in the server's process, those in another
/// one, and Karmada's, which may run in their place.
const OWN_MANAGERS: [&str; 5] = [
    "flotilla-controllers",
    "flotilla",
    "karmada-controller-manager",
    "karmada-descheduler",
    "karmada-scheduler",
];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFieldsEntry {
    manager: String,
    time: String,
    subresource: String,
    fields_v1: Value,
}

/// The manager that set the field `spec.FIELD` last, if it is none of the control plane's own.
pub(crate) fn user_of_field(object: &Object, field: &str) -> Option<String> {
    let manager = manager_of_field(object, field)?;
    let is_own = OWN_MANAGERS.contains(&manager.as_str());
    (!is_own).then_some(manager)
}

/// The manager that set the field `spec.FIELD` last.
pub(crate) fn manager_of_field(object: &Object, field: &str) -> Option<String> {
    let text = object.managed_fields_json()?;
    let entries: Vec<ManagedFieldsEntry> = machinery::json::from_str(text).ok()?;
    let pointer = format!("/f:spec/f:{field}");
    let owners = entries.into_iter().filter(|entry| {
        entry.subresource.is_empty() && entry.fields_v1.pointer(&pointer).is_some()
    });
    // The times are RFC 3339 in UTC with seconds, which sort as text.
    let last = owners.max_by(|a, b| a.time.cmp(&b.time))?;
    Some(last.manager)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: HIS-actor
    #[test]
    fn the_last_manager_of_a_field_is_named() {
        let entry = |manager: &str, time: &str, field: &str| {
            json!({"manager": manager, "operation": "Update", "time": time,
                "fieldsV1": {"f:spec": {field: {}}}})
        };
        let check = |entries: Value, expected: Option<&str>| {
            let object = Object::from_value(&json!({"metadata": {"name": "a"}})).unwrap();
            let object = object
                .with_managed_fields(Some(&entries.to_string()))
                .unwrap();
            let user = user_of_field(&object, "clusters");
            assert_eq!(user.as_deref(), expected, "{entries}");
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let own = |time| entry("flotilla-controllers", time, "f:clusters");
        let user = |time| entry("kubectl-edit", time, "f:clusters");
        check(json!([own(early), user(late)]), Some("kubectl-edit"));
        check(json!([own(late), user(early)]), None);
        check(json!([entry("kubectl-edit", late, "f:placement")]), None);
        check(json!([]), None);
    }
}
