//! A request on its way through the filters: each type has what the filters outside of
//! a service have found out, as kube-apiserver's request context has `RequestInfo` and
//! the user.

use std::sync::Arc;
use std::time::Instant;

use auth::PeerCertificates;
use http::Request;
use machinery::UserInfo;

use crate::metrics::RequestLabels;
use crate::negotiation::ResponseFormat;
use crate::requestinfo::{QueryParams, RequestInfo};

/// A request as received, with the certificates of its connection.
pub(crate) struct ReceivedRequest<B> {
    pub(crate) peer: PeerCertificates,
    pub(crate) http: Request<B>,
}

/// A request whose [`RequestInfo`] is known.
pub(crate) struct ResolvedRequest<B> {
    pub(crate) peer: PeerCertificates,
    pub(crate) http: Request<B>,
    pub(crate) received_at: Instant,
    pub(crate) info: RequestInfo,
    pub(crate) query: QueryParams,
    pub(crate) labels: Arc<RequestLabels>,
    /// The format of errors.
    pub(crate) format: ResponseFormat,
    /// Exempt from the deadline and the in-flight limits: watches, logs that are
    /// followed, tunnels.
    pub(crate) long_running: bool,
}

/// A request whose user is known.
pub(crate) struct AuthenticatedRequest<B> {
    /// The user to act as: inside of the impersonation filter the impersonated one.
    pub(crate) user: Arc<UserInfo>,
    /// Set by the deadline filter; `None` for long-running requests.
    pub(crate) deadline: Option<tokio::time::Instant>,
    pub(crate) request: ResolvedRequest<B>,
}
