//! Deletion protection: rejects the deletion of objects with a protecting label, here
//! or in a webhook for another API server. Does no I/O. Rule of Karmada's
//! `webhook/resourcedeletionprotection`.

use machinery::Status;
use serde_json::Value;

use crate::unstructured::get;

/// The label that protects an object when its value is [`DELETION_PROTECTED_ALWAYS`].
pub const DELETION_PROTECTED_LABEL: &str = "resourcetemplate.karmada.io/deletion-protected";
/// The only value of [`DELETION_PROTECTED_LABEL`] that protects.
pub const DELETION_PROTECTED_ALWAYS: &str = "Always";
/// The name of Karmada's webhook.
pub const WEBHOOK_NAME: &str = "resourcedeletionprotection.karmada.io";
/// The webhook's path for other API servers.
pub const WEBHOOK_PATH: &str = "/validate-resourcedeletionprotection";

/// The message of a rejected deletion.
pub fn denial_message() -> String {
    format!(
        "This resource is protected, please make sure to remove the label: {DELETION_PROTECTED_LABEL}"
    )
}

pub(crate) fn validate_deletion(object: &Value) -> Result<(), Status> {
    if is_protected(object) {
        return Err(Status::webhook_denied(WEBHOOK_NAME, denial_message()));
    }
    Ok(())
}

/// Decides on the `request` of an AdmissionReview; the error is the message of the
/// denial.
pub fn review_deletion(request: &Value) -> Result<(), String> {
    let deletes = request["operation"] == "DELETE";
    match deletes && is_protected(&request["oldObject"]) {
        true => Err(denial_message()),
        false => Ok(()),
    }
}

fn is_protected(object: &Value) -> bool {
    let value = get(object, "/metadata/labels").get(DELETION_PROTECTED_LABEL);
    value.and_then(Value::as_str) == Some(DELETION_PROTECTED_ALWAYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_always_protects() {
        for (labels, allowed) in [
            (json!({DELETION_PROTECTED_LABEL: "Always"}), false),
            (json!({DELETION_PROTECTED_LABEL: "always"}), true),
            (json!({}), true),
            (Value::Null, true),
        ] {
            let object = json!({"metadata": {"labels": labels}});
            assert_eq!(validate_deletion(&object).is_ok(), allowed, "{object}");
            let deletion = json!({"operation": "DELETE", "oldObject": object});
            assert_eq!(review_deletion(&deletion).is_ok(), allowed, "{object}");
            let update = json!({"operation": "UPDATE", "oldObject": object});
            assert!(review_deletion(&update).is_ok());
        }
        let status = validate_deletion(
            &json!({"metadata": {"labels": {DELETION_PROTECTED_LABEL: "Always"}}}),
        )
        .unwrap_err();
        assert_eq!(status.code, 403);
        assert_eq!(
            status.message,
            "admission webhook \"resourcedeletionprotection.karmada.io\" denied the request: This resource is protected, please make sure to remove the label: resourcetemplate.karmada.io/deletion-protected"
        );
    }
}
