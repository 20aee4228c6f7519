//! Takes the content of Secrets out of objects.

use karmada_api::well_known_keys::{APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES};
use serde_json::Value;

use crate::override_differences::{is_secret, may_select_secrets};

const REDACTED: &str = "REDACTED";
/// Annotations with copies of objects, or of the values that override policies write into them.
const COPIES: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    APPLIED_OVERRIDES,
    APPLIED_CLUSTER_OVERRIDES,
];

/// Redacts an object of a kind, which items of lists do not name themselves, and the Secrets that it
/// contains, such as the manifests of a Work.
pub(super) fn redact_object(kind: &str, object: &mut Value) {
    redact_fields(kind, object);
    redact_within(object);
}

fn redact_within(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact_within),
        Value::Object(fields) => {
            let kind = fields
                .get("kind")
                .and_then(Value::as_str)
                .map(str::to_owned);
            if let Some(kind) = kind {
                redact_fields(&kind, value);
            }
            if let Some(Value::Object(annotations)) = value.pointer_mut("/metadata/annotations") {
                annotations.retain(|key, _| !COPIES.contains(&key.as_str()));
            }
            let paths = ["/spec/overrideRules", "/spec/overriders"];
            let is_override_policy = paths.iter().any(|path| value.pointer(path).is_some());
            if is_override_policy && may_select_secrets(value) {
                redact_values(&mut value["spec"]);
            }
            let fields = value.as_object_mut().into_iter().flatten();
            fields.for_each(|(_, field)| redact_within(field));
        }
        _ => {}
    }
}

/// Replaces what the overriders of a policy write.
fn redact_values(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact_values),
        Value::Object(fields) => {
            for (name, field) in fields {
                match name == "value" {
                    true => *field = REDACTED.into(),
                    false => redact_values(field),
                }
            }
        }
        _ => {}
    }
}

/// Keeps the keys of a Secret's data, and those of its annotations, in which tools keep copies of it. Of
/// other kinds of secrets, such as KubeFed's FederatedSecrets, which have the content in places of their
/// own, the whole spec is left out.
fn redact_fields(kind: &str, object: &mut Value) {
    let fields: &[&str] = match kind {
        "Secret" => &["data", "stringData"],
        kind if is_secret(kind) => &["data", "stringData", "spec"],
        _ => return,
    };
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations
            .values_mut()
            .for_each(|value| *value = REDACTED.into());
    }
    for name in fields {
        match object.get_mut(*name) {
            Some(Value::Object(data)) if *name != "spec" => {
                data.values_mut().for_each(|value| *value = REDACTED.into());
            }
            Some(Value::Null) | None => {}
            Some(other) => *other = REDACTED.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: MCP-secrets
    #[test]
    fn no_content_of_a_secret_is_left() {
        let secret = json!({"metadata": {"name": "s", "annotations": {COPIES[0]: "hidden", "a": "hidden"}},
            "data": {"key": "hidden"}, "stringData": {"key": "hidden"}});
        let mut named = secret.clone();
        named["kind"] = "Secret".into();
        for (kind, mut object) in [
            ("Secret", secret.clone()),
            ("List", json!({"items": [named.clone()]})),
            (
                "Work",
                json!({"spec": {"workload": {"manifests": [named.clone()]}}}),
            ),
            (
                "Work",
                json!({"metadata": {"annotations": {COPIES[0]: "hidden", COPIES[1]: "hidden"}}}),
            ),
            (
                "OverridePolicy",
                json!({"spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}],
                    "overrideRules": [{"overriders": {"plaintext": [{"path": "/data/key", "value": "hidden"}]}}]}}),
            ),
            (
                "ControllerRevision",
                json!({"data": {"overridePolicies": [{"spec": {"overrideRules": [{"overriders":
                    {"labelsOverrider": [{"value": {"key": "hidden"}}]}}]}}]}}),
            ),
            ("Secret", json!({"data": "hidden"})),
            (
                "FederatedSecret",
                json!({"spec": {"template": {"data": {"key": "hidden"}}}}),
            ),
        ] {
            redact_object(kind, &mut object);
            assert!(!object.to_string().contains("hidden"), "{object}");
        }
        let mut redacted = secret;
        redact_object("Secret", &mut redacted);
        assert_eq!(redacted["data"], json!({"key": REDACTED}));
        assert_eq!(redacted["metadata"]["annotations"], json!({"a": REDACTED}));
        for (kind, mut shown) in [
            (
                "ConfigMap",
                json!({"kind": "ConfigMap", "data": {"key": "shown"}}),
            ),
            (
                "OverridePolicy",
                json!({"spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                    "overrideRules": [{"overriders": {"plaintext": [{"path": "/spec/paused", "value": true}]}}]}}),
            ),
        ] {
            let before = shown.clone();
            redact_object(kind, &mut shown);
            assert_eq!(shown, before);
        }
    }
}
