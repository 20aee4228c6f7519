//! Requests and inner services for the tests of single filters.

use std::future::{Future, Ready, ready};
use std::sync::Arc;
use std::time::Instant;

use auth::pki::Pki;
use auth::rbac::RbacAuthorizer;
use auth::{LocalAuthenticator, PeerCertificates, RequestAuthenticator, RequestAuthorizer, token};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::service::Service;
use machinery::time::SystemClock;
use machinery::{Status, UserInfo};
use registry::Registry;

use super::inner_service::{InnerService, ServerResponse};
use super::request::{AuthenticatedRequest, ReceivedRequest, ResolvedRequest};
use crate::VersionInfo;
use crate::metrics::{ApiServerMetrics, RequestLabels, verb_label};
use crate::negotiation::ResponseFormat;
use crate::requestinfo::{self, QueryParams};
use crate::response_body::ServerResponseBody;

pub(super) fn received<B>(http: Request<B>) -> ReceivedRequest<B> {
    ReceivedRequest::new(PeerCertificates::default(), None, http)
}

pub(super) fn resolved_request(method: &str, url: &str) -> ResolvedRequest<()> {
    resolved_request_with_body(method, url, ())
}

pub(super) fn resolved_request_with_body<B>(
    method: &str,
    url: &str,
    body: B,
) -> ResolvedRequest<B> {
    let http = Request::builder().method(method).uri(url);
    let ReceivedRequest {
        peer,
        audit_id,
        http,
        ..
    } = received(http.body(body).unwrap());
    let query = QueryParams::parse(http.uri().query());
    let info = requestinfo::parse_request(http.method(), http.uri().path(), &query).unwrap();
    let resource = info.resource.clone().unwrap_or_default();
    let labels = RequestLabels {
        verb: verb_label(info.verb),
        version: resource.version,
        resource: resource.resource,
        ..RequestLabels::default()
    };
    ResolvedRequest {
        peer,
        remote_address: None,
        audit_id,
        http,
        received_at: Instant::now(),
        info,
        query,
        scope: Ok(()),
        labels: Arc::new(labels),
        format: ResponseFormat::PLAIN_JSON,
        long_running: false,
        needs_body: false,
        audit: None,
        flow: None,
    }
}

pub(super) fn as_user<B>(
    request: ResolvedRequest<B>,
    name: &str,
    groups: &[&str],
) -> AuthenticatedRequest<B> {
    let user = UserInfo {
        name: name.into(),
        groups: groups.iter().map(|g| (*g).into()).collect(),
        ..UserInfo::default()
    };
    AuthenticatedRequest {
        user: Arc::new(user),
        deadline: None,
        body: None,
        request,
    }
}

/// A service made of a function.
pub(super) struct HandlerFn<F>(F);

pub(super) fn handler_fn<F>(handler: F) -> HandlerFn<F> {
    HandlerFn(handler)
}

impl<R, E, F, A> Service<R> for HandlerFn<F>
where
    F: Fn(R) -> A,
    A: Future<Output = Result<ServerResponse, E>>,
{
    type Response = ServerResponse;
    type Error = E;
    type Future = A;

    fn call(&self, request: R) -> A {
        (self.0)(request)
    }
}

/// A service that responds with a body in memory.
pub(super) fn respond<R, E>(
    code: u16,
) -> impl InnerService<R, E, Future = Ready<Result<ServerResponse, E>>> {
    handler_fn(move |_| {
        let mut response = Response::new(ServerResponseBody::full("text"));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        ready(Ok(response))
    })
}

/// A service that responds with a body of two chunks.
pub(super) fn respond_chunked<R, E>()
-> impl InnerService<R, E, Future = Ready<Result<ServerResponse, E>>> {
    handler_fn(|_| {
        let chunks = [Bytes::from("a"), Bytes::from("b")].into_iter();
        ready(Ok(Response::new(ServerResponseBody::chunks(
            Box::new(chunks),
            None,
        ))))
    })
}

/// A service that fails.
pub(super) fn fail<R>(status: Status) -> impl InnerService<R, Status> {
    handler_fn(move |_| ready(Err(status.clone())))
}

pub(super) fn metrics() -> Arc<ApiServerMetrics> {
    Arc::new(ApiServerMetrics::new(
        flotilla_metrics::MetricsRegistry::new(),
        false,
        &VersionInfo::default(),
    ))
}

/// Accepts requests without credentials as anonymous.
pub(super) fn authenticator() -> Arc<RequestAuthenticator> {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[], jiff::Timestamp::now()).unwrap();
    let signer = Arc::new(token::ServiceAccountTokens::new(&pki.token_key_pem).unwrap());
    let options = auth::authenticator::LocalAuthenticatorOptions::default();
    let local = LocalAuthenticator::new(None, signer, Arc::new(SystemClock), options);
    Arc::new(local.into())
}

/// Grants nothing but to `system:masters`.
pub(super) fn authorizer() -> Arc<RequestAuthorizer> {
    Arc::new(RbacAuthorizer::new().into())
}

pub(super) async fn registry() -> Arc<Registry> {
    let store = storage::EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default());
    let store: Arc<dyn storage::Store> = Arc::new(store.unwrap());
    let caches =
        watchcache::WatchCaches::new(Arc::clone(&store), watchcache::WatchCacheConfig::default());
    let admission = admission::AdmissionChain::new(admission::AdmissionChainOptions::default());
    let registry = Registry::new(
        store,
        caches,
        registry::RegistryOptions::new(Arc::new(admission)),
    );
    registry.bootstrap().await.unwrap();
    registry
}
