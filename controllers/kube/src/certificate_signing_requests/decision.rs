//! Decides what to do about a CertificateSigningRequest. Does no I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use machinery::certificate_request::{CertificateRequest, certificate_expiry};
use machinery::time;
use serde_json::Value;

use super::request_rules::{self, KUBELET_CLIENT};

/// How long a decided request is kept.
const DECIDED_TTL: SignedDuration = SignedDuration::from_hours(1);
/// How long a request is kept that nobody decides about.
const PENDING_TTL: SignedDuration = SignedDuration::from_hours(24);

const SELF_NODE_CLIENT: (&str, &str) = (
    "selfnodeclient",
    "Auto approving self kubelet client certificate after SubjectAccessReview.",
);
const NODE_CLIENT: (&str, &str) = (
    "nodeclient",
    "Auto approving kubelet client certificate after SubjectAccessReview.",
);

#[derive(Debug, PartialEq)]
pub(super) enum CsrDecision {
    Keep,
    WaitUntil(Timestamp),
    Delete,
    /// The signer refuses the request.
    Fail(String),
    Sign(Box<CertificateRequest>),
    /// Approve if the requester may create one of these subresources, with the message
    /// beside it; otherwise wait.
    ApproveIfAllowed(Vec<(&'static str, &'static str)>, Timestamp),
}

pub(super) fn decide_csr(csr: &Value, now: Timestamp) -> CsrDecision {
    if !csr["metadata"]["deletionTimestamp"].is_null() {
        return CsrDecision::Keep;
    }
    let Some(deadline) = deadline(csr) else {
        return CsrDecision::Keep;
    };
    if deadline <= now {
        return CsrDecision::Delete;
    }
    let has = |kind: &str| condition(csr, kind).is_some();
    if has("Denied") || has("Failed") || !certificate(csr).is_empty() {
        return CsrDecision::WaitUntil(deadline);
    }
    let signer = csr["spec"]["signerName"].as_str().unwrap_or_default();
    let request = match decoded_request(csr) {
        Ok(request) => request,
        Err(reason) if has("Approved") => return CsrDecision::Fail(reason),
        Err(_) => return CsrDecision::WaitUntil(deadline),
    };
    let usages = usages(csr);
    if has("Approved") {
        return match request_rules::check_request(signer, &request, &usages) {
            Some(Ok(())) => CsrDecision::Sign(Box::new(request)),
            Some(Err(reason)) => CsrDecision::Fail(reason),
            None => CsrDecision::WaitUntil(deadline),
        };
    }
    if signer != KUBELET_CLIENT || request_rules::check_kubelet_client(&request, &usages).is_err() {
        return CsrDecision::WaitUntil(deadline);
    }
    let mut permissions = vec![NODE_CLIENT];
    if csr["spec"]["username"] == request.common_name.as_str() {
        permissions.insert(0, SELF_NODE_CLIENT);
    }
    CsrDecision::ApproveIfAllowed(permissions, deadline)
}

fn decoded_request(csr: &Value) -> Result<CertificateRequest, String> {
    let encoded = csr["spec"]["request"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(encoded).ok();
    let pem = pem.and_then(|bytes| String::from_utf8(bytes).ok());
    CertificateRequest::from_pem(&pem.unwrap_or_default())
}

pub(super) fn usages(csr: &Value) -> Vec<String> {
    let usages = csr["spec"]["usages"].as_array().into_iter().flatten();
    usages
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn certificate(csr: &Value) -> &str {
    csr["status"]["certificate"].as_str().unwrap_or_default()
}

fn condition<'a>(csr: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = csr["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// When the request is deleted; `None` if its times cannot be read.
fn deadline(csr: &Value) -> Option<Timestamp> {
    let decided = ["Denied", "Failed", "Approved"]
        .iter()
        .filter_map(|kind| condition(csr, kind))
        .filter_map(|c| time::parse(c["lastUpdateTime"].as_str()?).ok())
        .min();
    let Some(decided) = decided else {
        let created = csr["metadata"]["creationTimestamp"].as_str()?;
        return time::parse(created).ok()?.checked_add(PENDING_TTL).ok();
    };
    let deadline = decided.checked_add(DECIDED_TTL).ok()?;
    // A certificate that has expired is of no use to anybody.
    let expiry = STANDARD
        .decode(certificate(csr))
        .ok()
        .and_then(|pem| certificate_expiry(&String::from_utf8(pem).ok()?))
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    Some(expiry.map_or(deadline, |expiry| expiry.min(deadline)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CREATED: &str = "2026-01-01T00:00:00Z";

    fn at(hours: i64) -> Timestamp {
        let created: Timestamp = CREATED.parse().unwrap();
        created + SignedDuration::from_hours(hours)
    }

    fn csr(conditions: &[&str]) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "lastUpdateTime": CREATED}))
            .collect();
        json!({"metadata": {"name": "a", "creationTimestamp": CREATED},
            "spec": {"signerName": "kubernetes.io/kube-apiserver-client",
                "request": "", "usages": ["client auth"]},
            "status": {"conditions": conditions}})
    }

    #[test]
    fn requests_are_deleted_after_their_time() {
        for kind in ["Approved", "Denied", "Failed"] {
            assert_eq!(
                decide_csr(&csr(&[kind]), at(1)),
                CsrDecision::Delete,
                "{kind}"
            );
        }
        assert_eq!(
            decide_csr(&csr(&["Denied"]), at(0)),
            CsrDecision::WaitUntil(at(1))
        );
        assert_eq!(
            decide_csr(&csr(&[]), at(23)),
            CsrDecision::WaitUntil(at(24))
        );
        assert_eq!(decide_csr(&csr(&[]), at(24)), CsrDecision::Delete);
        let mut deleted = csr(&["Denied"]);
        deleted["metadata"]["deletionTimestamp"] = CREATED.into();
        assert_eq!(decide_csr(&deleted, at(30)), CsrDecision::Keep);
    }

    #[test]
    fn an_approved_request_that_cannot_be_read_fails() {
        assert!(matches!(
            decide_csr(&csr(&["Approved"]), at(0)),
            CsrDecision::Fail(_)
        ));
        let decided = decide_csr(&csr(&["Approved", "Denied"]), at(0));
        assert_eq!(decided, CsrDecision::WaitUntil(at(1)));
        let decided = decide_csr(&csr(&["Approved", "Failed"]), at(0));
        assert_eq!(decided, CsrDecision::WaitUntil(at(1)));
    }
}
