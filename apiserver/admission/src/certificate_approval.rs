//! Decides who may approve, deny and sign certificate requests, and what they may change (the
//! admission plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction).

use async_trait::async_trait;
use jiff::Timestamp;
use machinery::time::rfc3339_seconds;
use machinery::{Status, UserInfo};
use serde_json::Value;

use crate::attributes::{AdmissionAttributes, AdmissionOperation};
use crate::builtin;
use crate::unstructured::{get, text};

const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = machinery::user::SYSTEM_PRIVILEGED_GROUP;

/// Decides whether a user may `approve` or `sign` for a signer. Fails when this cannot be
/// decided.
#[async_trait]
pub trait SignerAuthorizer: Send + Sync {
    async fn may(&self, user: &UserInfo, verb: &str, signer: &str) -> Result<bool, Status>;
}

/// Whether the request writes a CertificateSigningRequest.
pub(crate) fn concerns(attributes: &AdmissionAttributes<'_>) -> bool {
    &*attributes.gvk.group == "certificates.k8s.io"
        && &*attributes.gvk.kind == "CertificateSigningRequest"
}

/// Completes the conditions that a write of a subresource sets.
pub(crate) fn mutate(
    attributes: &AdmissionAttributes<'_>,
    new: &mut Value,
    old: Option<&Value>,
    now: Timestamp,
) {
    if let (AdmissionOperation::Update, "status" | "approval", Some(old)) =
        (attributes.operation, attributes.subresource, old)
    {
        builtin::mutate_status(attributes.subresource, new, old, &rfc3339_seconds(now));
    }
}

/// Validates a creation, or a write of a subresource.
pub(crate) async fn validate(
    authorizer: Option<&dyn SignerAuthorizer>,
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (verb, old) = match (attributes.operation, attributes.subresource, old) {
        (AdmissionOperation::Create, "", _) => return check_subject(attributes, new),
        (AdmissionOperation::Update, "approval", Some(old)) => ("approve", old),
        (AdmissionOperation::Update, "status", Some(old)) => ("sign", old),
        _ => return Ok(()),
    };
    let is_unchanged = |field: &str| get(new, field) == get(old, field);
    let signs_nothing = is_unchanged("/status/certificate") && is_unchanged("/status/conditions");
    let signer = text(old, "/spec/signerName");
    if (verb == "approve" || !signs_nothing)
        && !is_authorized(authorizer, attributes.user, verb, signer).await?
    {
        let message = format!("user not permitted to {verb} requests with signerName {signer:?}");
        return Err(Status::forbidden(attributes.gvr, attributes.name, message));
    }
    let errors = builtin::validate_status(attributes.subresource, new, old);
    match errors.as_slice() {
        [] => Ok(()),
        errors => Err(Status::invalid(attributes.gvk, attributes.name, errors)),
    }
}

/// A right on `domain/*` is a right on all signers of the domain.
async fn is_authorized(
    authorizer: Option<&dyn SignerAuthorizer>,
    user: &UserInfo,
    verb: &str,
    signer: &str,
) -> Result<bool, Status> {
    let Some(authorizer) = authorizer else {
        return Ok(false);
    };
    if authorizer.may(user, verb, signer).await? {
        return Ok(true);
    }
    match signer.split_once('/') {
        Some((domain, _)) => authorizer.may(user, verb, &format!("{domain}/*")).await,
        None => Ok(false),
    }
}

/// Nobody gets a certificate of a superuser.
fn check_subject(attributes: &AdmissionAttributes<'_>, csr: &Value) -> Result<(), Status> {
    if text(csr, "/spec/signerName") != API_SERVER_CLIENT {
        return Ok(());
    }
    let request = builtin::certificate_request(csr).map_err(|message| {
        Status::forbidden(
            attributes.gvr,
            attributes.name,
            format!("failed to parse CSR: {message}"),
        )
    })?;
    if request.organizations.iter().any(|group| group == MASTERS) {
        let message =
            format!("use of {API_SERVER_CLIENT} signer with {MASTERS} group is not allowed");
        return Err(Status::forbidden(attributes.gvr, attributes.name, message));
    }
    Ok(())
}
