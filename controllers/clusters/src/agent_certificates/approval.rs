//! Decides whether a certificate request is one of an agent, and which right its requester
//! needs. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::certificate_request::CertificateRequest;
use serde_json::Value;

pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const AGENTS_GROUP: &str = "system:karmada:agents";
const AGENT_USER_PREFIX: &str = "system:karmada:agent:";
const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";

/// A subresource of certificate requests that the requester must be allowed to create, and
/// the message of the approval.
pub(super) type RequiredPermission = (&'static str, &'static str);

const SELF_CLUSTER_AGENT: RequiredPermission = (
    "selfclusteragent",
    "Auto approving self karmada agent certificate after SubjectAccessReview.",
);
const CLUSTER_AGENT: RequiredPermission = (
    "clusteragent",
    "Auto approving karmada agent certificate after SubjectAccessReview.",
);

/// The permissions, one of which the requester needs; none if the request is decided already
/// or is not that of an agent.
pub(super) fn required_permissions(csr: &Value) -> Vec<RequiredPermission> {
    let decided = csr["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(is_decision));
    let signed = csr["status"]["certificate"]
        .as_str()
        .is_some_and(|c| !c.is_empty());
    let deleted = !csr["metadata"]["deletionTimestamp"].is_null();
    if decided || signed || deleted || csr["spec"]["signerName"] != SIGNER {
        return Vec::new();
    }
    let Some(request) = decode_request(csr).filter(is_agent_request) else {
        return Vec::new();
    };
    if !has_client_usages(csr) {
        return Vec::new();
    }
    let mut permissions = vec![CLUSTER_AGENT];
    if csr["spec"]["username"] == request.common_name.as_str() {
        permissions.insert(0, SELF_CLUSTER_AGENT);
    }
    permissions
}

fn is_decision(condition: &Value) -> bool {
    ["Approved", "Denied"]
        .iter()
        .any(|kind| condition["type"] == *kind)
}

fn decode_request(csr: &Value) -> Option<CertificateRequest> {
    let pem = STANDARD.decode(csr["spec"]["request"].as_str()?).ok()?;
    CertificateRequest::from_pem(&String::from_utf8(pem).ok()?).ok()
}

fn is_agent_request(request: &CertificateRequest) -> bool {
    request.organizations == [AGENTS_GROUP]
        && request.common_name.starts_with(AGENT_USER_PREFIX)
        && request.dns_names.is_empty()
        && request.email_addresses.is_empty()
        && request.ip_addresses.is_empty()
        && request.uris.is_empty()
}

/// Whether the usages are the digital signature and client authentication, with or without
/// key encipherment.
fn has_client_usages(csr: &Value) -> bool {
    let usages: Vec<&str> = csr["spec"]["usages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let required = [DIGITAL_SIGNATURE, CLIENT_AUTH];
    required.iter().all(|usage| usages.contains(usage))
        && usages
            .iter()
            .all(|u| required.contains(u) || *u == KEY_ENCIPHERMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_and_certificate_request::KeyAndCertificateRequest;
    use serde_json::json;

    fn csr(user: &str, group: &str, usages: &[&str]) -> Value {
        let made = KeyAndCertificateRequest::generate(user, group).unwrap();
        json!({"metadata": {"name": "a"}, "spec": {"signerName": SIGNER, "usages": usages,
            "request": STANDARD.encode(made.request_pem), "username": "system:bootstrap:abcdef"}})
    }

    fn names(csr: &Value) -> Vec<&'static str> {
        required_permissions(csr)
            .iter()
            .map(|(name, _)| *name)
            .collect()
    }

    const USAGES: [&str; 3] = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH];

    #[test]
    fn agents_need_one_right_and_their_own_renewal_another() {
        let mut request = csr("system:karmada:agent:m1", AGENTS_GROUP, &USAGES);
        assert_eq!(names(&request), ["clusteragent"]);
        request["spec"]["usages"] = json!([CLIENT_AUTH, DIGITAL_SIGNATURE]);
        request["spec"]["username"] = "system:karmada:agent:m1".into();
        assert_eq!(names(&request), ["selfclusteragent", "clusteragent"]);
        for kind in ["Approved", "Denied"] {
            let mut decided = request.clone();
            decided["status"] = json!({"conditions": [{"type": kind}]});
            assert!(names(&decided).is_empty(), "{kind}");
        }
    }

    #[test]
    fn other_requests_are_left_alone() {
        let agent = "system:karmada:agent:m1";
        assert!(names(&csr("system:node:m1", AGENTS_GROUP, &USAGES)).is_empty());
        assert!(names(&csr(agent, "system:masters", &USAGES)).is_empty());
        assert!(names(&csr(agent, AGENTS_GROUP, &[CLIENT_AUTH])).is_empty());
        let server = [DIGITAL_SIGNATURE, CLIENT_AUTH, "server auth"];
        assert!(names(&csr(agent, AGENTS_GROUP, &server)).is_empty());
        let mut other = csr(agent, AGENTS_GROUP, &USAGES);
        other["spec"]["signerName"] = "kubernetes.io/kubelet-serving".into();
        assert!(names(&other).is_empty());
        let mut malformed = csr(agent, AGENTS_GROUP, &USAGES);
        malformed["spec"]["request"] = "AAAA".into();
        assert!(names(&malformed).is_empty());
    }
}
