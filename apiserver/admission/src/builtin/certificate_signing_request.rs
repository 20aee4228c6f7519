//! Mutates and validates CertificateSigningRequests
//! (`pkg/apis/certificates/validation`, `pkg/registry/certificates/certificates`).

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::certificate_request::{CertificateRequest, check_certificates};
use machinery::names::validate_dns1123_subdomain;
use machinery::{FieldError, UserInfo};
use serde_json::{Value, json};

use crate::unstructured::{get, index_path, int, items, text};

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
const CONDITIONS: &str = "status.conditions";
const CERTIFICATE: &str = "status.certificate";
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// A domain of 253 bytes, a slash, and a path of 317 bytes.
const MAX_SIGNER_NAME_LENGTH: usize = 571;
const MIN_EXPIRATION_SECONDS: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The request that an object contains, decoded.
pub(crate) fn certificate_request(csr: &Value) -> Result<CertificateRequest, String> {
    CertificateRequest::from_pem(&decoded(text(csr, "/spec/request")).unwrap_or_default())
}

fn decoded(base64: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(base64).ok()?).ok()
}

/// Sets who requests the certificate, whatever the request says about it.
pub(super) fn set_requester(csr: &mut Value, user: &UserInfo) {
    let Some(spec) = csr.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let fields = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (field, value, is_empty) in fields {
        match is_empty {
            true => spec.remove(field),
            false => spec.insert(field.into(), value),
        };
    }
}

/// Validates a new object; its spec cannot change later.
pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old.is_some() {
        return;
    }
    if let Err(detail) = certificate_request(new) {
        errors.push(FieldError::invalid(
            "spec.request",
            get(new, "/spec/request"),
            detail,
        ));
    }
    let usages = items(new, "/spec/usages");
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    let mut distinct = BTreeSet::new();
    for (i, usage) in usages.iter().enumerate() {
        let field = index_path("spec.usages", i);
        let name = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&name) {
            errors.push(FieldError::not_supported(field, usage, &USAGES));
        } else if !distinct.insert(name) {
            errors.push(FieldError::duplicate(field, usage));
        }
    }
    validate_signer_name(get(new, "/spec/signerName"), errors);
    if let Some(seconds) = int(new, "/spec/expirationSeconds")
        && seconds < MIN_EXPIRATION_SECONDS
    {
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            &seconds.into(),
            "may not specify a duration less than 600 seconds (10 minutes)",
        ));
    }
}

fn validate_signer_name(value: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "spec.signerName";
    let name = value.as_str().unwrap_or_default();
    let mut invalid = |detail: String| errors.push(FieldError::invalid(FIELD, value, detail));
    if name.is_empty() {
        errors.push(FieldError::required(FIELD, ""));
        return;
    }
    if name == LEGACY_SIGNER {
        return invalid("the legacy signerName is not allowed via this API version".into());
    }
    let Some((domain, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        return invalid(
            "must be a fully qualified domain and path of the form 'example.com/signer-name'"
                .into(),
        );
    };
    if let Err(detail) = validate_dns1123_subdomain(domain) {
        invalid(format!("validating domain: {detail}"));
    } else if !domain.contains('.') {
        invalid("should be a domain with at least two segments separated by dots".into());
    }
    if let Err(detail) = validate_dns1123_subdomain(path) {
        invalid(format!("validating path: {detail}"));
    }
    if name.len() > MAX_SIGNER_NAME_LENGTH {
        errors.push(FieldError::too_long(FIELD, MAX_SIGNER_NAME_LENGTH));
    }
}

/// Sets the times of conditions that have none, and undoes changes that the subresource
/// does not make: of approvals by `status`, of the certificate by `approval`.
pub(crate) fn mutate_status(subresource: &str, new: &mut Value, old: &Value, now: &str) {
    match subresource {
        "approval" => match old["status"].get("certificate") {
            Some(certificate) => new["status"]["certificate"] = certificate.clone(),
            None => {
                if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
                    status.remove("certificate");
                }
            }
        },
        _ => {
            for kind in [APPROVED, DENIED] {
                keep_conditions(kind, new, old);
            }
        }
    }
    let old = items(old, "/status/conditions");
    let conditions = new.pointer_mut("/status/conditions");
    for condition in conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(fields) = condition.as_object_mut() else {
            continue;
        };
        let unset = |fields: &serde_json::Map<String, Value>, field: &str| {
            fields
                .get(field)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
        };
        if unset(fields, "lastUpdateTime") {
            fields.insert("lastUpdateTime".into(), now.into());
        }
        if unset(fields, "lastTransitionTime") {
            let has_same_type = |c: &&Value| {
                ["type", "status"]
                    .iter()
                    .all(|f| c.get(*f) == fields.get(*f))
                    && !text(c, "/lastTransitionTime").is_empty()
            };
            let last_transition = old
                .iter()
                .find(has_same_type)
                .map(|c| c["lastTransitionTime"].clone());
            fields.insert(
                "lastTransitionTime".into(),
                last_transition.unwrap_or_else(|| now.into()),
            );
        }
    }
}

/// Takes conditions of a type from the old object if the new one has as many of them.
fn keep_conditions(kind: &str, new: &mut Value, old: &Value) {
    let mut before = conditions_of(old, kind)
        .into_iter()
        .cloned()
        .collect::<Vec<_>>();
    if conditions_of(new, kind).len() != before.len() {
        return;
    }
    let conditions = new.pointer_mut("/status/conditions");
    for condition in conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if condition["type"] == kind {
            *condition = before.remove(0);
        }
    }
}

fn conditions_of<'a>(csr: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = items(csr, "/status/conditions").iter();
    all.filter(|condition| condition["type"] == kind).collect()
}

/// Validates a write of the subresource `status` or `approval`.
pub(crate) fn validate_status(subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_conditions(new, &mut errors);
    let approves = subresource == "approval";
    for kind in [APPROVED, DENIED, FAILED] {
        let (after, before) = (conditions_of(new, kind), conditions_of(old, kind));
        let detail = if after.len() < before.len() {
            "remove"
        } else if approves || kind == FAILED || after == before {
            continue;
        } else if after.len() > before.len() {
            "add"
        } else {
            "modify"
        };
        let detail = format!("updates may not {detail} a condition of type {kind:?}");
        errors.push(FieldError::forbidden(CONDITIONS, &detail));
    }
    let (after, before) = (
        text(new, "/status/certificate"),
        text(old, "/status/certificate"),
    );
    if after != before {
        if approves {
            let detail = "updates may not set certificate content";
            errors.push(FieldError::forbidden(CERTIFICATE, detail));
        } else if !before.is_empty() {
            let detail = "updates may not modify existing certificate content";
            errors.push(FieldError::forbidden(CERTIFICATE, detail));
        } else if let Err(detail) = check_certificates(&decoded(after).unwrap_or_default()) {
            let placeholder = "<certificate data>".into();
            errors.push(FieldError::invalid(CERTIFICATE, &placeholder, detail));
        }
    }
    errors
}

fn validate_conditions(csr: &Value, errors: &mut Vec<FieldError>) {
    let mut types = BTreeSet::new();
    for (i, condition) in items(csr, "/status/conditions").iter().enumerate() {
        let field = |name: &str| format!("{}.{name}", index_path(CONDITIONS, i));
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if kind.is_empty() {
            errors.push(FieldError::required(field("type"), ""));
        } else if !types.insert(kind) {
            errors.push(FieldError::duplicate(field("type"), &kind.into()));
        }
        match status {
            "" => errors.push(FieldError::required(field("status"), "")),
            "True" => {}
            "False" | "Unknown" if [APPROVED, DENIED, FAILED].contains(&kind) => {
                errors.push(FieldError::not_supported(
                    field("status"),
                    &status.into(),
                    &["True"],
                ));
            }
            "False" | "Unknown" => {}
            _ => errors.push(FieldError::not_supported(
                field("status"),
                &status.into(),
                &["False", "True", "Unknown"],
            )),
        }
    }
    if types.contains(APPROVED) && types.contains(DENIED) {
        errors.push(FieldError::invalid(
            CONDITIONS,
            &"Approved/Denied".into(),
            "Approved and Denied conditions are mutually exclusive",
        ));
    }
}
