//! Takes the content of Secrets out of objects.

use serde_json::Value;

const REDACTED: &str = "REDACTED";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

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
            let fields = value.as_object_mut().into_iter().flatten();
            fields.for_each(|(_, field)| redact_within(field));
        }
        _ => {}
    }
}

/// Keeps the keys of a Secret's data. Of other kinds of secrets, such as KubeFed's FederatedSecrets,
/// which have the content in places of their own, the whole spec is left out.
fn redact_fields(kind: &str, object: &mut Value) {
    let fields: &[&str] = match kind {
        "Secret" => &["data", "stringData"],
        kind if kind.ends_with("Secret") => &["data", "stringData", "spec"],
        _ => return,
    };
    if let Some(annotations) = object.pointer_mut("/metadata/annotations")
        && let Some(annotations) = annotations.as_object_mut()
    {
        annotations.remove(LAST_APPLIED);
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
        let secret = json!({"metadata": {"name": "s", "annotations": {LAST_APPLIED: "hidden", "a": "b"}},
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
        assert_eq!(redacted["metadata"]["annotations"], json!({"a": "b"}));
        let mut map = json!({"kind": "ConfigMap", "data": {"key": "shown"}});
        let before = map.clone();
        redact_object("ConfigMap", &mut map);
        assert_eq!(map, before);
    }
}
