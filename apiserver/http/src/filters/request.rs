//! A request on its way through the filters: each type has what the filters outside of
//! a service have found out, as kube-apiserver's request context has `RequestInfo` and
//! the user.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use auth::PeerCertificates;
use http::{HeaderMap, HeaderValue, Request};
use machinery::{Status, UserInfo};

use crate::audit::RequestAudit;
use crate::flowcontrol::SharedFlow;
use crate::metrics::RequestLabels;
use crate::negotiation::ResponseFormat;
use crate::request_body::ChargedRequestBody;
use crate::requestinfo::{QueryParams, RequestInfo};

/// Longer IDs from clients are replaced.
const MAX_AUDIT_ID_BYTES: usize = 64;

/// A request as received, with the certificates of its connection.
pub(crate) struct ReceivedRequest<B> {
    pub(crate) peer: PeerCertificates,
    pub(crate) remote_address: Option<IpAddr>,
    pub(crate) audit_id: HeaderValue,
    pub(crate) http: Request<B>,
}

impl<B> ReceivedRequest<B> {
    pub(crate) fn new(
        peer: PeerCertificates,
        remote_address: Option<IpAddr>,
        http: Request<B>,
    ) -> Self {
        Self {
            peer,
            remote_address,
            audit_id: audit_id(http.headers()),
            http,
        }
    }
}

impl<B> ReceivedRequest<B> {
    /// A request that a proxy of this server passes on to it.
    pub(crate) fn passed_on(http: Request<B>) -> Self {
        Self::new(PeerCertificates::default(), None, http)
    }
}

/// The audit ID that the client sent when it is valid, else a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let is_valid = |v: &&HeaderValue| {
        let bytes = v.as_bytes();
        let graphic = bytes.iter().all(u8::is_ascii_graphic);
        !bytes.is_empty() && bytes.len() <= MAX_AUDIT_ID_BYTES && graphic
    };
    if let Some(client_id) = headers.get("audit-id").filter(is_valid) {
        return client_id.clone();
    }
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("none"))
}

/// A request whose [`RequestInfo`] is known.
pub(crate) struct ResolvedRequest<B> {
    pub(crate) peer: PeerCertificates,
    pub(crate) remote_address: Option<IpAddr>,
    pub(crate) audit_id: HeaderValue,
    pub(crate) http: Request<B>,
    pub(crate) received_at: Instant,
    pub(crate) info: RequestInfo,
    pub(crate) query: QueryParams,
    /// Fails if the path has not the scope of the resource that it names.
    pub(crate) scope: Result<(), Status>,
    pub(crate) labels: Arc<RequestLabels>,
    /// The format of errors.
    pub(crate) format: ResponseFormat,
    /// Exempt from the deadline and the in-flight limits: watches, logs that are
    /// followed, tunnels.
    pub(crate) long_running: bool,
    /// Whether it is a write, whose body is read before the handler is called.
    pub(crate) needs_body: bool,
    /// `None` when nothing is audited.
    pub(crate) audit: Option<Arc<RequestAudit>>,
    /// `None` without flow control.
    pub(crate) flow: Option<SharedFlow>,
}

/// A request whose user is known.
pub(crate) struct AuthenticatedRequest<B> {
    /// The user to act as: inside of the impersonation filter the impersonated one.
    pub(crate) user: Arc<UserInfo>,
    /// Set by the deadline filter; `None` for long-running requests.
    pub(crate) deadline: Option<tokio::time::Instant>,
    /// Set by the filter of bodies; `None` if the request needs none.
    pub(crate) body: Option<ChargedRequestBody>,
    pub(crate) request: ResolvedRequest<B>,
}
