//! Builds AdmissionReview requests of `admission.k8s.io` and parses their responses
//! (`apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`). Versions v1 and
//! v1beta1 have the same fields.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery::{Gvk, Gvr, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use super::configuration::{AdmissionWebhook, ReviewVersion};
use crate::attributes::AdmissionAttributes;

/// The decision of a webhook.
#[derive(Debug)]
pub(super) struct WebhookDecision {
    pub(super) result: Result<(), Status>,
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
    pub(super) audit_annotations: BTreeMap<String, String>,
}

fn kind((gvk, _): &(Gvk, Gvr)) -> Value {
    json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
}

fn resource((_, gvr): &(Gvk, Gvr)) -> Value {
    json!({"group": gvr.group, "version": gvr.version, "resource": gvr.resource})
}

/// Builds a review and returns its UID and body. `converted` is the version that the
/// webhook accepts and in which the objects are passed, `requested` the client's.
pub(super) fn build_request(
    review_version: ReviewVersion,
    attributes: &AdmissionAttributes<'_>,
    converted: &(Gvk, Gvr),
    requested: &(Gvk, Gvr),
    new: Value,
    old: Value,
) -> (String, Bytes) {
    let uid = uuid::Uuid::new_v4().to_string();
    let name = match attributes.name {
        "" => new["metadata"]["name"].as_str().unwrap_or_default(),
        name => name,
    };
    let mut request = json!({
        "uid": uid,
        "kind": kind(converted),
        "resource": resource(converted),
        "requestKind": kind(requested),
        "requestResource": resource(requested),
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user,
        "dryRun": attributes.dry_run,
        "options": attributes.options_object(),
    });
    for (field, value) in [
        ("name", name),
        ("namespace", attributes.namespace),
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
    ] {
        if !value.is_empty() {
            request[field] = value.into();
        }
    }
    request["object"] = new;
    request["oldObject"] = old;
    let review = json!({"apiVersion": review_version.api_version(), "kind": "AdmissionReview", "request": request});
    (uid, review.to_string().into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReviewResponse {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<AdmissionResponse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionResponse {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    audit_annotations: BTreeMap<String, String>,
}

/// Parses the response to the review `uid`. A v1beta1 response may omit the UID.
pub(super) fn parse_response(
    webhook: &AdmissionWebhook,
    uid: &str,
    body: &[u8],
) -> Result<WebhookDecision, String> {
    let review: AdmissionReviewResponse =
        machinery::json::from_slice(body).map_err(|e| format!("cannot parse the response: {e}"))?;
    let response = review.response.ok_or("webhook response was absent")?;
    let api_version = webhook.review_version.api_version();
    let actual = (
        review.api_version.unwrap_or_default(),
        review.kind.unwrap_or_default(),
    );
    if webhook.review_version == ReviewVersion::V1 {
        if response.uid != uid {
            return Err(format!(
                "expected response.uid={uid:?}, got {:?}",
                response.uid
            ));
        }
        if (&*actual.0, &*actual.1) != (api_version, "AdmissionReview") {
            return Err(format!(
                "expected webhook response of {api_version}, Kind=AdmissionReview, got {}, Kind={}",
                actual.0, actual.1
            ));
        }
    }
    let patch = match (response.patch, response.patch_type.as_deref()) {
        (None, _) => None,
        (Some(text), Some("JSONPatch")) => {
            let raw = STANDARD
                .decode(text)
                .map_err(|e| format!("response.patch is not base64: {e}"))?;
            let patch = machinery::json::from_slice(&raw);
            Some(patch.map_err(|e| format!("response.patch is not JSON: {e}"))?)
        }
        (Some(_), other) => return Err(format!("unsupported response.patchType {other:?}")),
    };
    Ok(WebhookDecision {
        result: match response.allowed {
            true => Ok(()),
            false => Err(denied_status(
                &webhook.name,
                response.status.unwrap_or_default(),
            )),
        },
        patch,
        warnings: response.warnings,
        audit_annotations: response.audit_annotations,
    })
}

/// The error for the client (`webhook/errors/statuserror.go`).
fn denied_status(webhook: &str, mut status: Status) -> Status {
    let denied = format!("admission webhook {webhook:?} denied the request");
    status.code = status.code.max(400);
    status.status = "Failure".into();
    status.message = match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    status
}

/// Whether both values are versions of the same object.
pub(crate) fn same_identity(before: &Value, after: &Value) -> bool {
    let fields = [
        "/apiVersion",
        "/kind",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
    ];
    let mut all = fields.into_iter();
    all.all(|field| before.pointer(field) == after.pointer(field))
}
