//! The audit event as JSON (audit.k8s.io/v1 `Event`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use http::Request;
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use machinery::UserInfo;
use machinery::bounded_text::{MAX_QUOTED_BYTES, truncate};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::level_and_stage::{AuditLevel, AuditStage};

const MAX_USER_AGENT_BYTES: usize = 1024;
/// The largest event; objects of the size that the store takes fit twice.
pub(super) const MAX_EVENT_BYTES: usize = 4 << 20;
/// The annotation of an event that is not complete.
pub(super) const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The request as it was received, for its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceRequest {
    pub(crate) audit_id: String,
    pub(crate) request_uri: String,
    pub(crate) verb: &'static str,
    pub(crate) source_ips: Vec<String>,
    pub(crate) user_agent: String,
}

impl SourceRequest {
    pub(crate) fn new<B>(
        audit_id: &HeaderValue,
        remote_address: Option<IpAddr>,
        request: &Request<B>,
        verb: &'static str,
    ) -> Self {
        let uri = request.uri();
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Self {
            audit_id: audit_id.to_str().unwrap_or_default().to_owned(),
            request_uri: path.to_owned(),
            verb,
            source_ips: source_ips(request.headers(), remote_address),
            user_agent: user_agent(request.headers()),
        }
    }
}

/// The addresses of the client and of the proxies in front of us, the nearest last
/// (apimachinery's `SourceIPs`).
fn source_ips(headers: &HeaderMap, remote_address: Option<IpAddr>) -> Vec<String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = header("x-forwarded-for").unwrap_or_default().split(',');
    let mut addresses: Vec<IpAddr> = forwarded.filter_map(|a| a.trim().parse().ok()).collect();
    let real = header("x-real-ip").and_then(|a| a.trim().parse().ok());
    for address in [real, remote_address].into_iter().flatten() {
        if addresses.last() != Some(&address) {
            addresses.push(address);
        }
    }
    addresses.iter().map(IpAddr::to_string).collect()
}

fn user_agent(headers: &HeaderMap) -> String {
    let Some(value) = headers.get(USER_AGENT) else {
        return String::new();
    };
    let bytes = value.as_bytes();
    let truncated = &bytes[..bytes.len().min(MAX_USER_AGENT_BYTES)];
    let mut text = String::from_utf8_lossy(truncated).into_owned();
    if truncated.len() < bytes.len() {
        text.push_str("...TRUNCATED");
    }
    text
}

/// The object that a request is about (audit.k8s.io/v1 `ObjectReference`).
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

/// How the identity was authenticated (audit.k8s.io/v1 `AuthenticationMetadata`).
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationMetadata {
    pub(super) impersonation_constraint: &'static str,
}

/// The event of one stage.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuditEvent<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: AuditLevel,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: AuditStage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'static str,
    pub(super) user: &'a UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<&'a UserInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<&'a AuditObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<&'a RawValue>,
    pub(super) request_received_timestamp: String,
    pub(super) stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: &'a BTreeMap<String, String>,
}

impl AuditEvent<'_> {
    pub(super) const KIND: &'static str = "Event";
    pub(super) const API_VERSION: &'static str = "audit.k8s.io/v1";

    /// Encodes the event. One that is too large loses its bodies, then all but the beginning of
    /// its annotations and of the message of its status, and says so in an annotation
    /// (kube-apiserver's truncating backend).
    pub(super) fn encode(&self) -> Option<Bytes> {
        let bodies = [self.request_object, self.response_object];
        let body_bytes: usize = bodies.iter().flatten().map(|body| body.get().len()).sum();
        if body_bytes <= MAX_EVENT_BYTES && !self.annotations.contains_key(TRUNCATED) {
            let encoded = serde_json::to_vec(self).ok()?;
            if encoded.len() <= MAX_EVENT_BYTES {
                return Some(encoded.into());
            }
        }
        self.encode_truncated()
    }

    fn encode_truncated(&self) -> Option<Bytes> {
        let mut annotations: BTreeMap<String, String> = self.annotations.clone();
        annotations
            .values_mut()
            .for_each(|value| truncate(value, MAX_QUOTED_BYTES));
        annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        let event = AuditEvent {
            annotations: &annotations,
            request_object: None,
            response_object: None,
            request_received_timestamp: self.request_received_timestamp.clone(),
            stage_timestamp: self.stage_timestamp.clone(),
            ..*self
        };
        serde_json::to_vec(&event).ok().map(Bytes::from)
    }
}
