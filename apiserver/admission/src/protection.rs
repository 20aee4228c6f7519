//! Deletion protection: an object may carry a label that forbids its deletion.
//!
//! Enters: the object to be deleted, or the review of another API server that is
//! about to delete it. Leaves: a refusal or nothing. Pure. Rule of Karmada's
//! `webhook/resourcedeletionprotection`.

use machinery::Status;
use serde_json::Value;

use crate::tree::get;

/// The label that protects, with [`ALWAYS`].
pub const LABEL: &str = "resourcetemplate.karmada.io/deletion-protected";
/// The value is compared as it is; others mean nothing.
pub const ALWAYS: &str = "Always";
/// The webhook's name.
pub const WEBHOOK: &str = "resourcedeletionprotection.karmada.io";
/// Where other API servers ask.
pub const PATH: &str = "/validate-resourcedeletionprotection";

/// What is said to who tries.
pub fn message() -> String {
    format!("This resource is protected, please make sure to remove the label: {LABEL}")
}

pub(crate) fn check(object: &Value) -> Result<(), Status> {
    if is_protected(object) {
        return Err(Status::denied(WEBHOOK, message()));
    }
    Ok(())
}

/// The verdict on the `request` of an AdmissionReview; an error is why not.
pub fn review(request: &Value) -> Result<(), String> {
    let deletes = request["operation"] == "DELETE";
    match deletes && is_protected(&request["oldObject"]) {
        true => Err(message()),
        false => Ok(()),
    }
}

fn is_protected(object: &Value) -> bool {
    let value = get(object, "/metadata/labels").get(LABEL);
    value.and_then(Value::as_str) == Some(ALWAYS)
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
            let asked = json!({"operation": "DELETE", "oldObject": object});
            assert_eq!(review(&asked).is_ok(), fine, "{object}");
            let kept = json!({"operation": "UPDATE", "oldObject": object});
            assert!(review(&kept).is_ok());
        }
        let status = check(&json!({"metadata": {"labels": {LABEL: "Always"}}})).unwrap_err();
        assert_eq!(status.code, 403);
        assert_eq!(
            status.message,
            "admission webhook \"resourcedeletionprotection.karmada.io\" denied the request: This resource is protected, please make sure to remove the label: resourcetemplate.karmada.io/deletion-protected"
        );
    }
}
