//! Reads which agent asks for a certificate, and decides whether it is approved. Pure.
//!
//! A bootstrap token is worth one cluster: the one that it was created for, or the first for which it
//! obtains a certificate. The certificate of an agent that is registered is renewed by itself only.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::certificate_request::CertificateRequest;
use openapi::karmada::agents::{
    AGENTS_GROUP, RBAC_GENERATOR, cluster_of_agent, is_reserved_cluster_name,
};
use serde_json::Value;

use crate::context::AgentRegistrationMode;
use crate::join::check_cluster_name;

pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const BOOTSTRAP_USER_PREFIX: &str = "system:bootstrap:";
const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const CLIENT_AUTH: &str = "client auth";

/// A subresource of certificate requests that the requester must be allowed to create, and
/// the message of the approval.
pub(super) type RequiredPermission = (&'static str, &'static str);

pub(super) const SELF_CLUSTER_AGENT: RequiredPermission = (
    "selfclusteragent",
    "Auto approving self karmada agent certificate after SubjectAccessReview.",
);
const CLUSTER_AGENT: RequiredPermission = (
    "clusteragent",
    "Auto approving karmada agent certificate after SubjectAccessReview.",
);

/// The request of an agent's certificate, or of that of the user who creates the roles of agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentCertificateRequest {
    /// The user of the certificate.
    user: String,
    requester: String,
}

impl AgentCertificateRequest {
    /// `None` if the request is decided already or is not that of an agent.
    pub(super) fn of_csr(csr: &Value) -> Option<Self> {
        let decided = csr["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(is_decision));
        let signed = csr["status"]["certificate"]
            .as_str()
            .is_some_and(|c| !c.is_empty());
        let deleted = !csr["metadata"]["deletionTimestamp"].is_null();
        if decided || signed || deleted || csr["spec"]["signerName"] != SIGNER {
            return None;
        }
        let request = decode_request(csr).filter(is_agent_request)?;
        has_client_usages(csr).then(|| Self {
            user: request.common_name,
            requester: csr["spec"]["username"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        })
    }

    /// The cluster of the agent; that of the user who creates roles is none.
    pub(super) fn cluster(&self) -> Option<&str> {
        cluster_of_agent(&self.user).filter(|_| self.user != RBAC_GENERATOR)
    }

    /// The id of the bootstrap token of the requester.
    pub(super) fn token_id(&self) -> Option<&str> {
        self.requester.strip_prefix(BOOTSTRAP_USER_PREFIX)
    }

    /// The permissions, one of which the requester needs. The user who creates roles renews nothing.
    pub(super) fn permissions(&self, mode: AgentRegistrationMode) -> Vec<RequiredPermission> {
        let is_agent = self.cluster().is_some() || mode == AgentRegistrationMode::Karmada;
        match self.requester == self.user {
            true if is_agent => vec![SELF_CLUSTER_AGENT, CLUSTER_AGENT],
            true => Vec::new(),
            false => vec![CLUSTER_AGENT],
        }
    }
}

/// A bootstrap token that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenClaim {
    pub(super) id: String,
    /// The cluster that it registers; empty before its first use.
    pub(super) cluster: String,
}

/// What is decided about a request whose requester has the permission.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CertificateDecision {
    Approve,
    /// Approve after the token is bound to the cluster.
    BindAndApprove,
    Deny(String),
    /// An administrator decides.
    Leave(String),
}

/// Decides about a certificate for the agent of `cluster`, which is not a renewal.
pub(super) fn decide_certificate(
    request: &AgentCertificateRequest,
    cluster: &str,
    cluster_exists: bool,
    tokens: &[TokenClaim],
) -> CertificateDecision {
    let refuse = |why: String| match request.token_id() {
        Some(_) => CertificateDecision::Deny(why),
        None => CertificateDecision::Leave(why),
    };
    if check_cluster_name(cluster).is_err() || is_reserved_cluster_name(cluster) {
        return refuse(format!("no agent may have the cluster name {cluster:?}"));
    }
    if cluster_exists {
        return refuse(format!(
            "failed to register as cluster with name {cluster} already exists; only its own agent may renew its certificate"
        ));
    }
    let Some(id) = request.token_id() else {
        return CertificateDecision::Approve;
    };
    let Some(token) = tokens.iter().find(|token| token.id == id) else {
        return refuse(format!("the bootstrap token {id:?} is gone"));
    };
    if !token.cluster.is_empty() && token.cluster != cluster {
        return refuse(format!(
            "the bootstrap token {id:?} registers the cluster {:?} only",
            token.cluster
        ));
    }
    let mut others = tokens.iter().filter(|token| token.id != id);
    if others.any(|other| other.cluster == cluster) {
        return refuse(format!(
            "another bootstrap token registers the cluster {cluster:?}"
        ));
    }
    match token.cluster.is_empty() {
        true => CertificateDecision::BindAndApprove,
        false => CertificateDecision::Approve,
    }
}

/// Decides about a certificate for the user who creates the roles of agents.
pub(super) fn decide_generator(mode: AgentRegistrationMode) -> CertificateDecision {
    match mode {
        AgentRegistrationMode::Standalone | AgentRegistrationMode::Karmada => {
            CertificateDecision::Approve
        }
        AgentRegistrationMode::BehindHost => CertificateDecision::Deny(
            "this control plane creates the roles of agents itself: register with `flotilla register`".into(),
        ),
    }
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
        && cluster_of_agent(&request.common_name).is_some()
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
        let Some(request) = AgentCertificateRequest::of_csr(csr) else {
            return Vec::new();
        };
        let permissions = request.permissions(AgentRegistrationMode::Standalone);
        permissions.iter().map(|(name, _)| *name).collect()
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

    // proves: CSR-generator
    #[test]
    fn the_user_who_creates_roles_renews_nothing() {
        let mut request = csr(RBAC_GENERATOR, AGENTS_GROUP, &USAGES);
        assert_eq!(names(&request), ["clusteragent"]);
        request["spec"]["username"] = RBAC_GENERATOR.into();
        assert!(names(&request).is_empty());
        let request = AgentCertificateRequest::of_csr(&request).unwrap();
        assert_eq!(request.cluster(), None);
        let behind = decide_generator(AgentRegistrationMode::BehindHost);
        assert!(matches!(behind, CertificateDecision::Deny(_)));
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

    // proves: CSR-one-cluster, CSR-existing
    #[test]
    fn a_token_is_worth_one_cluster() {
        let request = |requester: &str, cluster: &str| AgentCertificateRequest {
            user: format!("system:karmada:agent:{cluster}"),
            requester: requester.into(),
        };
        let claim = |id: &str, cluster: &str| TokenClaim {
            id: id.into(),
            cluster: cluster.into(),
        };
        let token = "system:bootstrap:abcdef";
        let tokens = [
            claim("abcdef", ""),
            claim("ghijkl", "b"),
            claim("mnopqr", "c"),
        ];
        // Requester, cluster, whether it exists, and the beginning of the decision.
        for (requester, cluster, exists, expected) in [
            (token, "a", false, "BindAndApprove"),
            (token, "a", true, "Deny(\"failed to register"),
            (token, "b", false, "Deny(\"another bootstrap token"),
            ("system:bootstrap:ghijkl", "b", false, "Approve"),
            (
                "system:bootstrap:ghijkl",
                "a",
                false,
                "Deny(\"the bootstrap token \\\"ghijkl\\\" registers",
            ),
            (
                "system:bootstrap:ghijkl",
                "b",
                true,
                "Deny(\"failed to register",
            ),
            (
                "system:bootstrap:stuvwx",
                "a",
                false,
                "Deny(\"the bootstrap token \\\"stuvwx\\\" is gone",
            ),
            (token, "rbac-generator", false, "Deny(\"no agent may have"),
            (token, "a-impersonator", false, "Deny(\"no agent may have"),
            (token, "A", false, "Deny(\"no agent may have"),
            ("admin", "a", false, "Approve"),
            ("admin", "a", true, "Leave(\"failed to register"),
        ] {
            let decided =
                decide_certificate(&request(requester, cluster), cluster, exists, &tokens);
            let decided = format!("{decided:?}");
            assert!(
                decided.starts_with(expected),
                "{requester} {cluster}: {decided}"
            );
        }
    }
}
