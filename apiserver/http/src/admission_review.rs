//! Serves admission webhooks for other API servers: an AdmissionReview in, the same
//! review with its response out.
//!
//! Callers are not authenticated, so a response depends on the review alone.

use std::collections::BTreeMap;

use http::Response;
use machinery::Status;
use serde_json::{Value, json};

use crate::negotiation::ResponseFormat;
use crate::response_body::ServerResponseBody;
use crate::response_writers;

/// Decides on the `request` of an AdmissionReview; the error is the message of the
/// denial. Must be fast and without side effects.
pub type AdmissionReviewHandler = fn(&Value) -> Result<(), String>;
/// Handlers by path.
pub type AdmissionReviewHandlers = BTreeMap<&'static str, AdmissionReviewHandler>;

/// Serves an AdmissionReview of `admission.k8s.io/v1`.
pub(crate) fn serve_admission_review(
    webhook: AdmissionReviewHandler,
    body: &[u8],
) -> Result<Response<ServerResponseBody>, Status> {
    let malformed =
        |detail: String| Status::bad_request(format!("not an AdmissionReview: {detail}"));
    let review: Value = machinery::json::from_slice(body).map_err(|e| malformed(e.to_string()))?;
    let (version, request) = (&review["apiVersion"], &review["request"]);
    if version != "admission.k8s.io/v1" || review["kind"] != "AdmissionReview" {
        return Err(malformed(format!("{version}, Kind={}", review["kind"])));
    }
    let uid = request["uid"].as_str().unwrap_or_default();
    if uid.is_empty() {
        return Err(malformed("the request has no uid".into()));
    }
    let mut response = json!({"uid": uid, "allowed": true});
    if let Err(message) = webhook(request) {
        response["allowed"] = false.into();
        response["status"] = json!({"code": 403, "reason": "Forbidden", "message": message});
    }
    let reviewed = json!({"apiVersion": version, "kind": "AdmissionReview", "response": response});
    Ok(response_writers::write_value(
        200,
        &reviewed,
        ResponseFormat::PLAIN_JSON,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_reviews_are_served_or_rejected() {
        let webhook: AdmissionReviewHandler = |request| match request["operation"].as_str() {
            Some("DELETE") => Err("no".into()),
            _ => Ok(()),
        };
        let review = |operation: &str| {
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {"uid": "u", "operation": operation}})
        };
        let ask = |review: &Value| serve_admission_review(webhook, review.to_string().as_bytes());
        for operation in ["DELETE", "UPDATE"] {
            assert_eq!(ask(&review(operation)).unwrap().status(), 200);
        }
        let mut old = review("DELETE");
        old["apiVersion"] = "admission.k8s.io/v1beta1".into();
        let mut without_uid = review("DELETE");
        without_uid["request"]["uid"] = Value::Null;
        for malformed_review in [old, without_uid, json!([])] {
            let code = ask(&malformed_review).err().map(|status| status.code);
            assert_eq!(code, Some(400), "{malformed_review}");
        }
    }
}
