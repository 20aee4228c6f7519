//! Reads which agent asks for a certificate, and decides whether it is approved. Pure.
//!
//! A bootstrap token is worth one registration of one cluster: the cluster that it was created for, or
//! the first for which it obtains a certificate. The certificate of an agent that is registered is
//! renewed by itself only, and only while its Cluster exists.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karmada_api::agents::is_reserved_cluster_name;
use machinery::agent_user::{
    AGENT_CLUSTER_UID, AGENT_PUBLIC_KEYS, AGENTS_GROUP, RBAC_GENERATOR, cluster_of_agent,
};
use machinery::agent_user::{PUBLIC_KEY_EXTRA, agent_keys, public_key_id};
use machinery::certificate_request::CertificateRequest;
use serde_json::Value;

use crate::join::check_cluster_name;
use crate::options::AgentRegistrationMode;

pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The reason of the approvals of this controller.
pub(super) const AUTO_APPROVED: &str = "AutoApproved";
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
    /// The public key of the certificate of the requester, if it is known.
    requester_key: Option<String>,
    /// The public key of the requested certificate.
    pub(super) key: String,
}

impl AgentCertificateRequest {
    /// `None` if the request is decided already or is not that of an agent.
    pub(super) fn of_csr(csr: &Value) -> Option<Self> {
        let mut conditions = conditions(csr);
        let decided = conditions.any(|c| ["Approved", "Denied"].iter().any(|k| c["type"] == *k));
        let signed = csr["status"]["certificate"]
            .as_str()
            .is_some_and(|c| !c.is_empty());
        match decided || signed {
            true => None,
            false => Self::parse(csr),
        }
    }

    /// A request of an agent that an administrator has approved.
    pub(super) fn of_csr_approved_by_hand(csr: &Value) -> Option<Self> {
        let by_hand = |c: &Value| c["type"] == "Approved" && c["reason"] != AUTO_APPROVED;
        match conditions(csr).any(by_hand) {
            true => Self::parse(csr),
            false => None,
        }
    }

    fn parse(csr: &Value) -> Option<Self> {
        let deleted = !csr["metadata"]["deletionTimestamp"].is_null();
        if deleted || csr["spec"]["signerName"] != SIGNER {
            return None;
        }
        let request = decode_request(csr).filter(is_agent_request)?;
        let requester_key = csr["spec"]["extra"][PUBLIC_KEY_EXTRA][0].as_str();
        has_client_usages(csr).then(|| Self {
            user: request.common_name,
            requester: csr["spec"]["username"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            requester_key: requester_key.map(str::to_owned),
            key: public_key_id(&request.public_key_der),
        })
    }

    /// The public key of the agent that renews its certificate, if it is known.
    pub(super) fn renewed_key(&self) -> Option<&str> {
        let key = self.requester_key.as_deref();
        key.filter(|_| self.requester == self.user)
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
    /// The UID of the registration that it was used for; empty before its first use.
    pub(super) registration: String,
}

/// The registration of an agent as its ClusterRole records it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredRegistration {
    pub(super) uid: String,
    /// The annotation with the public keys of its certificates.
    pub(super) keys: String,
    /// Whether the role has no such annotation, as roles of earlier releases.
    admits_all: bool,
    /// The UID of the Cluster that was registered; empty before.
    cluster_uid: String,
    created: String,
}

impl StoredRegistration {
    pub(super) fn of_role(role: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let annotations = &role["metadata"]["annotations"];
        Self {
            uid: text(&role["metadata"]["uid"]),
            keys: text(&annotations[AGENT_PUBLIC_KEYS]),
            admits_all: annotations[AGENT_PUBLIC_KEYS].is_null(),
            cluster_uid: text(&annotations[AGENT_CLUSTER_UID]),
            created: text(&role["metadata"]["creationTimestamp"]),
        }
    }

    /// Whether a certificate that an administrator has approved is of this registration, and not known.
    pub(super) fn lacks_key_of(&self, csr: &Value, request: &AgentCertificateRequest) -> bool {
        // Timestamps of metadata are in UTC and of one length.
        let requested = csr["metadata"]["creationTimestamp"].as_str();
        let is_newer = requested.is_some_and(|requested| requested >= &*self.created);
        is_newer && !self.admits_all && !agent_keys(&self.keys).any(|key| key == request.key)
    }
}

/// The decision about a request whose requester has the permission.
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
    registration: Option<&StoredRegistration>,
) -> CertificateDecision {
    let refuse = |reason: String| match request.token_id() {
        Some(_) => CertificateDecision::Deny(reason),
        None => CertificateDecision::Leave(reason),
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
    let has_ended = |token: &TokenClaim| {
        let is_current = registration.is_some_and(|registration| {
            registration.uid == token.registration && registration.cluster_uid.is_empty()
        });
        !token.registration.is_empty() && !is_current
    };
    if has_ended(token) {
        return refuse(format!(
            "the bootstrap token {id:?} was used for a registration of the cluster {cluster:?} that has ended; create another token"
        ));
    }
    let mut others = tokens.iter().filter(|token| token.id != id);
    if others.any(|other| other.cluster == cluster && !has_ended(other)) {
        return refuse(format!(
            "another bootstrap token registers the cluster {cluster:?}"
        ));
    }
    match token.cluster.is_empty() {
        true => CertificateDecision::BindAndApprove,
        false => CertificateDecision::Approve,
    }
}

/// Decides about the renewal of the certificate of an agent. `cluster_uid` is that of its Cluster, unless
/// that is being deleted.
pub(super) fn decide_renewal(
    request: &AgentCertificateRequest,
    cluster_uid: Option<&str>,
    registration: Option<&StoredRegistration>,
) -> CertificateDecision {
    let ended = "the cluster of the agent is gone; register it again with a new bootstrap token";
    let Some(cluster_uid) = cluster_uid else {
        return CertificateDecision::Deny(ended.into());
    };
    let Some(registration) = registration else {
        // An administrator has given the agent its rights.
        return CertificateDecision::Approve;
    };
    if !registration.cluster_uid.is_empty() && registration.cluster_uid != cluster_uid {
        return CertificateDecision::Deny(ended.into());
    }
    let is_admitted = match request.renewed_key() {
        Some(key) if !registration.keys.is_empty() => {
            agent_keys(&registration.keys).any(|admitted| admitted == key)
        }
        _ => true,
    };
    match is_admitted {
        true => CertificateDecision::Approve,
        false => CertificateDecision::Deny(
            "the certificate of the requester is of an earlier registration of the cluster".into(),
        ),
    }
}

/// Decides about a certificate for the user who creates the roles of agents: before a token is used, since
/// karmadactl creates the roles of a cluster before it registers it.
pub(super) fn decide_generator(
    mode: AgentRegistrationMode,
    token: Option<&TokenClaim>,
) -> CertificateDecision {
    match mode {
        AgentRegistrationMode::Standalone
            if token.is_some_and(|token| !token.registration.is_empty()) =>
        {
            CertificateDecision::Deny("the bootstrap token was used for a registration".into())
        }
        AgentRegistrationMode::Standalone | AgentRegistrationMode::Karmada => {
            CertificateDecision::Approve
        }
        AgentRegistrationMode::BehindHost => CertificateDecision::Deny(
            "this control plane creates the roles of agents itself: register with `flotilla register`".into(),
        ),
    }
}

fn conditions(csr: &Value) -> impl Iterator<Item = &Value> {
    csr["status"]["conditions"].as_array().into_iter().flatten()
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
    use crate::key_and_certificate_request::CertificateEnrollment;
    use serde_json::json;

    fn csr(user: &str, group: &str, usages: &[&str]) -> Value {
        let enrollment = CertificateEnrollment::generate(user, group).unwrap();
        json!({"metadata": {"name": "a"}, "spec": {"signerName": SIGNER, "usages": usages,
            "request": STANDARD.encode(enrollment.request_pem), "username": "system:bootstrap:abcdef"}})
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
        let behind = decide_generator(AgentRegistrationMode::BehindHost, None);
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
            requester_key: None,
            key: String::new(),
        };
        let claim = |id: &str, cluster: &str| TokenClaim {
            id: id.into(),
            cluster: cluster.into(),
            registration: String::new(),
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
                decide_certificate(&request(requester, cluster), cluster, exists, &tokens, None);
            let decided = format!("{decided:?}");
            assert!(
                decided.starts_with(expected),
                "{requester} {cluster}: {decided}"
            );
        }
    }

    // proves: CSR-ended
    #[test]
    fn a_used_token_ends_with_the_registration() {
        let request = AgentCertificateRequest {
            user: "system:karmada:agent:a".into(),
            requester: "system:bootstrap:abcdef".into(),
            requester_key: None,
            key: String::new(),
        };
        let registration = |uid: &str, cluster_uid: &str| StoredRegistration {
            uid: uid.into(),
            cluster_uid: cluster_uid.into(),
            ..StoredRegistration::default()
        };
        for (used_for, stored, approved) in [
            ("", None, true),
            ("", Some(registration("1", "")), true),
            ("1", Some(registration("1", "")), true),
            ("1", Some(registration("1", "c")), false),
            ("1", Some(registration("2", "")), false),
            ("1", None, false),
        ] {
            let token = TokenClaim {
                id: "abcdef".into(),
                cluster: "a".into(),
                registration: used_for.into(),
            };
            let next = TokenClaim {
                id: "ghijkl".into(),
                registration: String::new(),
                ..token.clone()
            };
            let mut next_request = request.clone();
            next_request.requester = "system:bootstrap:ghijkl".into();
            // Another token of the cluster is accepted where the registration has ended.
            for (request, approved) in [(&request, approved), (&next_request, !approved)] {
                let tokens = [token.clone(), next.clone()];
                let tokens = match request.requester == next_request.requester {
                    true => &tokens[..],
                    false => &tokens[..1],
                };
                let decided = decide_certificate(request, "a", false, tokens, stored.as_ref());
                let is_approved = decided == CertificateDecision::Approve;
                assert_eq!(is_approved, approved, "{used_for} {stored:?}: {decided:?}");
            }
        }
    }

    // proves: CSR-ended, AGT-former
    #[test]
    fn an_agent_renews_its_certificate_while_its_cluster_exists() {
        let agent = "system:karmada:agent:a";
        let request = |key: Option<&str>| AgentCertificateRequest {
            user: agent.into(),
            requester: agent.into(),
            requester_key: key.map(str::to_owned),
            key: "new".into(),
        };
        let registration = |keys: &str, cluster_uid: &str| {
            let annotations = json!({AGENT_PUBLIC_KEYS: keys, AGENT_CLUSTER_UID: cluster_uid});
            StoredRegistration::of_role(
                &json!({"metadata": {"uid": "1", "annotations": annotations}}),
            )
        };
        for (key, cluster, stored, approved) in [
            (Some("k"), Some("c"), Some(registration("k,l", "c")), true),
            (Some("k"), Some("c"), Some(registration("", "")), true),
            (None, Some("c"), Some(registration("k", "c")), true),
            (Some("k"), Some("c"), None, true),
            (Some("k"), None, None, false),
            (Some("k"), None, Some(registration("k", "")), false),
            (Some("k"), Some("d"), Some(registration("k", "c")), false),
            (Some("m"), Some("c"), Some(registration("k,l", "c")), false),
        ] {
            let decided = decide_renewal(&request(key), cluster, stored.as_ref());
            let is_approved = decided == CertificateDecision::Approve;
            assert_eq!(
                is_approved, approved,
                "{key:?} {cluster:?} {stored:?}: {decided:?}"
            );
        }
    }

    // proves: AGT-former
    #[test]
    fn a_certificate_approved_by_hand_belongs_to_the_registration_it_was_requested_in() {
        let mut request = csr("system:karmada:agent:a", AGENTS_GROUP, &USAGES);
        request["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
        let approved = |csr: &Value, reason: &str| {
            let mut csr = csr.clone();
            csr["status"] = json!({"conditions": [{"type": "Approved", "reason": reason}]});
            AgentCertificateRequest::of_csr_approved_by_hand(&csr)
        };
        assert_eq!(approved(&request, AUTO_APPROVED), None);
        let by_hand = approved(&request, "KubectlApprove").unwrap();
        for (created, keys, lacks) in [
            ("2026-01-01T00:00:00Z", json!("SHA256=other"), true),
            ("2026-01-03T00:00:00Z", json!("SHA256=other"), false),
            // A role that karmadactl has created, and one of an earlier release.
            ("2026-01-01T00:00:00Z", json!(""), true),
            ("2026-01-01T00:00:00Z", Value::Null, false),
            ("2026-01-01T00:00:00Z", json!(by_hand.key), false),
        ] {
            let role = StoredRegistration::of_role(&json!({"metadata": {
                "creationTimestamp": created, "annotations": {AGENT_PUBLIC_KEYS: keys}}}));
            assert_eq!(
                role.lacks_key_of(&request, &by_hand),
                lacks,
                "{created} {keys}"
            );
        }
    }
}
