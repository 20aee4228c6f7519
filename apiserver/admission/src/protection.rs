//! Deletion protection: an object may carry a label that forbids its deletion.
//!
//! Enters: the object to be deleted. Leaves: a refusal or nothing. Pure. Rule of
//! Karmada's `webhook/resourcedeletionprotection`.

use machinery::Status;
use serde_json::Value;

use crate::tree::get;

const LABEL: &str = "resourcetemplate.karmada.io/deletion-protected";
const WEBHOOK: &str = "resourcedeletionprotection.karmada.io";

/// The value is compared as it is; others mean nothing.
pub(crate) fn check(object: &Value) -> Result<(), Status> {
    let value = get(object, "/metadata/labels").get(LABEL);
    if value.and_then(Value::as_str) != Some("Always") {
        return Ok(());
    }
    let why = format!("This resource is protected, please make sure to remove the label: {LABEL}");
    Err(Status::denied(WEBHOOK, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_always_protects() {
        for (labels, fine) in [
            (json!({LABEL: "Always"}), false),
            (json!({LABEL: "always"}), true),
            (json!({}), true),
            (Value::Null, true),
        ] {
            let object = json!({"metadata": {"labels": labels}});
            assert_eq!(check(&object).is_ok(), fine, "{object}");
        }
        let status = check(&json!({"metadata": {"labels": {LABEL: "Always"}}})).unwrap_err();
        assert_eq!(status.code, 403);
        assert!(status.message.starts_with(
            "admission webhook \"resourcedeletionprotection.karmada.io\" denied the request: "
        ));
    }
}
