//! Obtains the certificate of an agent with a CertificateSigningRequest.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, ResourcePath, WriteOptions};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::key_and_certificate_request::CertificateEnrollment;
use karmada_api::agents::{AGENT_REGISTRATION, AgentRegistration};
use karmada_api::well_known_keys::SYSTEM;
use machinery::agent_user::AGENTS_GROUP;
use machinery::agent_user::agent_user;

static REQUESTS: Gvr = Gvr::from_static("certificates.k8s.io", "v1", "certificatesigningrequests");
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Agents may get their request but not watch it.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A certificate and its private key, both PEM.
pub struct CertifiedKey {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// The certificate that is requested for the agent of a cluster.
pub struct AgentCertificateSpec<'a> {
    /// The name of the request.
    pub name: &'a str,
    pub cluster: &'a str,
    pub expiration_seconds: i32,
    /// The claims that the agent may make about its Cluster; `None` for a renewal.
    pub registration: Option<&'a AgentRegistration>,
}

impl AgentCertificateSpec<'_> {
    fn request(&self, request_pem: &str) -> Result<Value, Error> {
        let mut body = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name, "labels": {SYSTEM: "true"}},
            "spec": {
                "request": STANDARD.encode(request_pem), "signerName": SIGNER,
                "expirationSeconds": self.expiration_seconds,
                "usages": ["digital signature", "key encipherment", "client auth"],
            },
        });
        if let Some(registration) = self.registration {
            let text = serde_json::to_string(registration);
            let text = text.map_err(|e| Error::Protocol(e.to_string()))?;
            body["metadata"]["annotations"] = json!({AGENT_REGISTRATION: text});
        }
        Ok(body)
    }
}

/// Requests the certificate of an agent, and waits until it is issued.
pub async fn request_certificate(
    control: &dyn Api,
    spec: &AgentCertificateSpec<'_>,
    timeout: Duration,
) -> Result<CertifiedKey, Error> {
    let enrollment = CertificateEnrollment::generate(&agent_user(spec.cluster), AGENTS_GROUP);
    let enrollment = enrollment.map_err(Error::Protocol)?;
    let (name, body) = (spec.name, spec.request(&enrollment.request_pem)?);
    let at = ResourcePath::collection(&REQUESTS, "");
    let options = WriteOptions::default();
    control.create(at, body.into(), &options).await?;
    let issued = tokio::time::timeout(timeout, wait_for_certificate(control, name)).await;
    let certificate_pem = issued.map_err(|_| {
        Error::Protocol(format!(
            "the certificate request {name:?} was not signed within {} s; approve it with `kubectl certificate approve {name}`",
            timeout.as_secs()
        ))
    })??;
    Ok(CertifiedKey {
        certificate_pem,
        key_pem: enrollment.key_pem,
    })
}

async fn wait_for_certificate(control: &dyn Api, name: &str) -> Result<String, Error> {
    let at = ResourcePath::object(&REQUESTS, "", name);
    loop {
        let status = control.get(at).await?.value()?["status"].take();
        if let Some(certificate) = status["certificate"].as_str().filter(|c| !c.is_empty()) {
            let pem = STANDARD.decode(certificate).ok();
            let pem = pem.and_then(|bytes| String::from_utf8(bytes).ok());
            return pem.ok_or_else(|| Error::Protocol("the certificate is not PEM".into()));
        }
        if let Some(reason) = refusal(&status) {
            let message = format!("the certificate request {name:?} was refused: {reason}");
            return Err(Error::Protocol(message));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn refusal(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    let is_refusal = |c: &&Value| c["type"] == "Denied" || c["type"] == "Failed";
    let message = conditions.iter().find(is_refusal)?["message"].as_str();
    Some(message.unwrap_or("without a reason"))
}
