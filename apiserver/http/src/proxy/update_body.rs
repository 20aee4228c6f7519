//! Restores an object that was read through the global proxy to what its member knows, before it
//! is written there: without the annotation of its origin, and with the member's resourceVersion.

use bytes::Bytes;
use openapi::karmada::well_known_keys::CACHED_FROM_CLUSTER;
use serde_json::Value;

/// The body to send to the member. `member_version` finds the member's resourceVersion in one of
/// several clusters. A body that is no JSON, or has neither, is sent as it is: the member judges it.
pub(super) fn restore_object(
    body: Bytes,
    member_version: impl Fn(&str) -> Option<String>,
) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
        return body;
    };
    let annotations = value.pointer_mut("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object_mut);
    let mut changed = annotations.is_some_and(|all| all.remove(CACHED_FROM_CLUSTER).is_some());
    for field in [
        "/metadata/resourceVersion",
        // Of the options of a deletion.
        "/preconditions/resourceVersion",
    ] {
        let Some(version) = value.pointer_mut(field) else {
            continue;
        };
        let own = version.as_str().and_then(&member_version);
        if let Some(own) = own {
            *version = own.into();
            changed = true;
        }
    }
    match changed {
        true => serde_json::to_vec(&value).map_or(body, Bytes::from),
        false => body,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: SRC-update
    #[test]
    fn what_the_proxy_has_added_is_removed() {
        let own = |text: &str| (text == "composite").then(|| "7".to_owned());
        let restore = |value: &Value| -> Value {
            let body = restore_object(value.to_string().into(), own);
            serde_json::from_slice(&body).unwrap()
        };
        let read = json!({"metadata": {"name": "a", "resourceVersion": "composite",
            "annotations": {CACHED_FROM_CLUSTER: "m1", "x": "y"}}, "data": {}});
        let expected = json!({"metadata": {"name": "a", "resourceVersion": "7",
            "annotations": {"x": "y"}}, "data": {}});
        assert_eq!(restore(&read), expected);
        let options = json!({"preconditions": {"resourceVersion": "composite"}});
        assert_eq!(restore(&options)["preconditions"]["resourceVersion"], "7");
        for same in [
            json!({"metadata": {"resourceVersion": "7"}}),
            json!([{"op": "add", "path": "/a", "value": 1}]),
            json!("x"),
        ] {
            assert_eq!(restore(&same), same);
        }
        let yaml = Bytes::from_static(b"metadata: {}");
        assert_eq!(restore_object(yaml.clone(), own), yaml);
    }
}
