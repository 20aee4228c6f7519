//! Restores an object that was read through the global proxy to what its member knows, before it
//! is written there: without the annotation of its origin, and with the member's resourceVersion.

use bytes::Bytes;
use http::HeaderValue;
use karmada_api::well_known_keys::CACHED_FROM_CLUSTER;
use serde_json::Value;

use super::TransformedBody;
use crate::{request_body, yaml_body};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The body to send to the member. `restore` returns whether it has changed anything. A body that
/// cannot be decoded, or is not changed, is sent as it is: the member judges it. An object in protobuf
/// is sent in JSON; YAML stays what it is, as JSON is YAML.
pub(super) fn restore_body(
    body: Bytes,
    content_type: &str,
    restore: impl Fn(&mut Value) -> bool,
) -> TransformedBody {
    let media_type = content_type.split(';').next().unwrap_or("").trim();
    let is_protobuf = media_type.ends_with("protobuf");
    let unchanged = |bytes| TransformedBody {
        bytes,
        content_type: None,
    };
    let decoded = match media_type {
        _ if is_protobuf => request_body::decode_protobuf(&body).ok(),
        _ if media_type.ends_with("yaml") => yaml_body::decode_yaml(&body).ok(),
        _ => machinery::json::from_slice::<Value>(&body).ok(),
    };
    let Some(mut value) = decoded else {
        return unchanged(body);
    };
    if !restore(&mut value) {
        return unchanged(body);
    }
    match serde_json::to_vec(&value) {
        Ok(bytes) => TransformedBody {
            bytes: bytes.into(),
            content_type: is_protobuf.then_some(JSON),
        },
        Err(_) => unchanged(body),
    }
}

/// Restores an object, the options of a deletion, or the operations of a patch. `member_version` finds
/// the member's resourceVersion in one of several clusters. Returns whether anything changed.
pub(super) fn restore_value(
    value: &mut Value,
    member_version: impl Fn(&str) -> Option<String>,
) -> bool {
    let annotations = value.pointer_mut("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object_mut);
    let changed = annotations.is_some_and(|all| all.remove(CACHED_FROM_CLUSTER).is_some());
    restore_versions(value, member_version) || changed
}

/// As [`restore_value`], but of an object to which nothing was added.
pub(super) fn restore_versions(
    value: &mut Value,
    member_version: impl Fn(&str) -> Option<String>,
) -> bool {
    let mut versions = Vec::new();
    let mut changed = false;
    match value {
        Value::Array(operations) => {
            let operations = operations.iter_mut();
            let of_version = operations.filter(|o| o["path"] == "/metadata/resourceVersion");
            versions.extend(of_version.filter_map(|operation| operation.get_mut("value")));
        }
        object => {
            for parent in ["metadata", "preconditions"] {
                if let Some(fields) = object.get(parent)
                    && fields.get("resourceVersion").is_some()
                {
                    versions.extend(object[parent].get_mut("resourceVersion"));
                    break;
                }
            }
        }
    }
    for version in versions {
        if let Some(member_value) = version.as_str().and_then(&member_version) {
            *version = member_value.into();
            changed = true;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own_version(text: &str) -> Option<String> {
        (text == "composite").then(|| "7".to_owned())
    }

    fn restored(body: &[u8], content_type: &str) -> Value {
        let body = Bytes::copy_from_slice(body);
        let restored = restore_body(body, content_type, |value| {
            restore_value(value, own_version)
        });
        machinery::json::from_slice(&restored.bytes).unwrap()
    }

    // proves: SRC-update
    #[test]
    fn what_the_proxy_has_added_is_removed() {
        let read = json!({"metadata": {"name": "a", "resourceVersion": "composite",
            "annotations": {CACHED_FROM_CLUSTER: "m1", "x": "y"}}, "data": {}});
        let expected = json!({"metadata": {"name": "a", "resourceVersion": "7",
            "annotations": {"x": "y"}}, "data": {}});
        let operation = |value: &str| json!([{"op": "test", "path": "/metadata/resourceVersion", "value": value}]);
        let options = |version: &str| json!({"preconditions": {"resourceVersion": version}});
        for (body, expected) in [
            (read, expected),
            (options("composite"), options("7")),
            (operation("composite"), operation("7")),
        ] {
            let body = body.to_string();
            assert_eq!(restored(body.as_bytes(), "application/json"), expected);
            assert_eq!(restored(body.as_bytes(), ""), expected);
        }
        let yaml = b"metadata:\n  resourceVersion: composite\n";
        assert_eq!(
            restored(yaml, "application/apply-patch+yaml"),
            json!({"metadata": {"resourceVersion": "7"}})
        );
    }

    #[test]
    fn an_object_in_protobuf_is_sent_in_json() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "resourceVersion": "composite"}});
        let kind = machinery::Gvk::from_static("", "v1", "ConfigMap");
        let body = openapi::protobuf::encode_object(&kind, &object).unwrap();
        let body = restore_body(
            body.into(),
            "application/vnd.kubernetes.protobuf",
            |value| restore_value(value, own_version),
        );
        assert_eq!(body.content_type, Some(JSON));
        let value: Value = machinery::json::from_slice(&body.bytes).unwrap();
        assert_eq!(value["metadata"]["resourceVersion"], "7");
        assert_eq!(value["kind"], "ConfigMap");
    }

    #[test]
    fn other_bodies_stay() {
        for (body, content_type) in [
            (
                r#"{"metadata": {"resourceVersion": "7"}}"#,
                "application/json",
            ),
            (r#"[{"op": "add", "path": "/a", "value": 1}]"#, ""),
            (r#"[1, {"path": "/metadata/resourceVersion"}]"#, ""),
            ("metadata: {}", "application/yaml"),
            ("metadata: {", "application/json"),
            ("", "application/json"),
            (r#"{"metadata": {"annotations": {}}}"#, "application/json"),
            (r#"{"metadata": {"annotations": null}}"#, ""),
            ("k8s\0", "application/vnd.kubernetes.protobuf"),
        ] {
            let restored =
                restore_body(Bytes::from_static(body.as_bytes()), content_type, |value| {
                    restore_value(value, own_version)
                });
            assert_eq!(restored.bytes, body, "{body}");
            assert_eq!(restored.content_type, None);
        }
    }
}
