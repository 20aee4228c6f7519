//! The handler chain: runs every request through the filters in kube-apiserver's order
//! (`DefaultBuildHandlerChain`) and serves the non-resource paths.
//!
//! request ──► drain ──► authentication ──► in-flight limits ──► impersonation ──► authorization ──► deadline ──► handler

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{
    AuthenticationError, PeerCertificates, RequestAuthenticator, RequestAuthorizer,
    RequestCredentials, impersonation,
};
use futures_util::FutureExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use jiff::Timestamp;
use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use machinery::{Status, UserInfo};
use registry::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::documents::ApiDocuments;
use crate::health;
use crate::metrics::{ApiServerMetrics, RequestLabels, ResponseObservation, verb_label};
use crate::negotiation::{self, ResponseFormat};
use crate::options::Options;
use crate::requestinfo::{self, QueryParams, RequestInfo, RequestedResource};
use crate::resource_handlers::{ResourceCall, ResourceHandlers, time_limit};
use crate::response_body::ServerResponseBody;
use crate::subresources::find_connector;
use crate::watch_drain::WatchDrain;
use crate::{admission_review, request_body, response_writers};

/// Bound on short requests in flight; it exceeds what the connections' streams allow.
const MAX_SHORT_REQUESTS: u32 = 1 << 24;

/// Subresources whose proxied requests are long-running (kube-apiserver's
/// `--long-running-request-regexp` as Karmada sets it).
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// Serves every request of every connection of one listener.
pub(crate) struct ApiServerHandler {
    resources: ResourceHandlers,
    authentication: RequestAuthenticator,
    authorization: Arc<RequestAuthorizer>,
    pub(crate) metrics: Arc<ApiServerMetrics>,
    documents: ApiDocuments,
    options: Options,
    /// Permits for requests in flight: read-only, then mutating.
    inflight_permits: [Arc<Semaphore>; 2],
    /// Cancelled when shutdown starts: from then on new requests get 429.
    pub(crate) draining: CancellationToken,
    pub(crate) watch_drain: WatchDrain,
    /// One permit per request in flight that is neither a watch nor another stream.
    pub(crate) short_requests: Arc<Semaphore>,
}

/// The authorized user and the in-flight permit, which is held until the reply is sent.
struct AuthorizedRequest {
    user: Arc<UserInfo>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ApiServerHandler {
    pub(crate) fn new(
        registry: Arc<Registry>,
        authentication: RequestAuthenticator,
        authorization: RequestAuthorizer,
        mut options: Options,
        metrics: Arc<ApiServerMetrics>,
    ) -> Arc<Self> {
        let authorization = Arc::new(authorization);
        let watch_drain = WatchDrain::default();
        Arc::new(Self {
            documents: ApiDocuments::new(Arc::clone(&registry), options.clock.now()),
            inflight_permits: [
                options.max_requests_inflight,
                options.max_mutating_requests_inflight,
            ]
            .map(|n| Arc::new(Semaphore::new(n))),
            resources: ResourceHandlers {
                registry,
                authorizer: Arc::clone(&authorization),
                connectors: Arc::new(std::mem::take(&mut options.connectors)),
                getters: std::mem::take(&mut options.subresource_getters),
                clock: Arc::clone(&options.clock),
                metrics: Arc::clone(&metrics),
                watch_drain: watch_drain.clone(),
            },
            authentication,
            authorization,
            metrics,
            options,
            draining: CancellationToken::new(),
            watch_drain,
            short_requests: Arc::new(Semaphore::new(MAX_SHORT_REQUESTS as usize)),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Waits until no short request is in flight, at most for the request timeout.
    pub(crate) async fn drain_short_requests(&self) {
        let all = self.short_requests.acquire_many(MAX_SHORT_REQUESTS);
        let _ = tokio::time::timeout(self.options.request_timeout, all).await;
    }

    /// Serves one request. Errors and panics of the handler become a `Status` reply.
    pub(crate) async fn serve(
        self: Arc<Self>,
        peer: Arc<PeerCertificates>,
        request: Request<Incoming>,
    ) -> Response<ServerResponseBody> {
        let began = Instant::now();
        let query = QueryParams::parse(request.uri().query());
        let form = negotiation::negotiate(request.headers(), &query, false)
            .unwrap_or(ResponseFormat::PLAIN_JSON);
        let info = requestinfo::parse_request(request.method(), request.uri().path(), &query);
        let (route, mut response) = match info {
            Ok(info) => {
                let long = self.long_running(request.method(), &info, &query);
                let route = self.request_labels(&info, &query, long);
                let handled = self.run_filters(&peer, info, query, request, &route, long);
                let response = match AssertUnwindSafe(handled).catch_unwind().await {
                    Ok(Ok(response)) => response,
                    Ok(Err(status)) => {
                        response_writers::write_status(&self.mask_not_found(status), form)
                    }
                    Err(_) => {
                        self.metrics.aborts.inc();
                        let text =
                            "This request caused apiserver to panic. Look in the logs for details.";
                        response_writers::write_status(&Status::internal(text), form)
                    }
                };
                (route, response)
            }
            Err(status) => (
                RequestLabels::default(),
                response_writers::write_status(&status, form),
            ),
        };
        let code = response.status().as_u16();
        let long = matches!(route.verb, "WATCH" | "CONNECT") && code < 300;
        let took = (!long).then(|| began.elapsed());
        let size = http_body::Body::size_hint(response.body()).exact();
        if response.body().is_full() || long {
            self.metrics.observe_response(&route, code, took, size);
        } else {
            let observation = ResponseObservation {
                metrics: Arc::clone(&self.metrics),
                route,
                code,
                since: took.map(|_| began),
                size,
            };
            response.body_mut().attach_guard(observation);
        }
        response
    }

    /// Whether a request is exempt from the deadline. A proxied request is classified
    /// by the path that the proxy forwards to.
    fn long_running(&self, method: &Method, info: &RequestInfo, query: &QueryParams) -> bool {
        let Some(r) = &info.resource else {
            return false;
        };
        if info.verb == "watch" {
            return true;
        }
        match (
            find_connector(&self.resources.connectors, r),
            r.subresource.as_str(),
        ) {
            (None, _) => false,
            (_, "log") => query.flag("follow"),
            (_, "proxy") => {
                requestinfo::parse_request(method, &r.subpath, query).is_ok_and(|inner| {
                    let lasts = |i: &RequestedResource| {
                        LONG_RUNNING_SUBRESOURCES.contains(&i.subresource.as_str())
                    };
                    inner.verb == "watch" || inner.resource.as_ref().is_some_and(lasts)
                })
            }
            _ => true,
        }
    }

    fn request_labels(&self, info: &RequestInfo, query: &QueryParams, long: bool) -> RequestLabels {
        let verb = verb_label(info.verb);
        let mut route = RequestLabels {
            verb,
            dry_run: query.get("dryRun") == Some("All"),
            ..RequestLabels::default()
        };
        let Some(r) = &info.resource else {
            return route;
        };
        let table = self.resources.registry.table();
        let Some(resource_info) = table.find_by_name(&r.group, &r.version, &r.resource) else {
            return route;
        };
        let sub_known = resource_info.subresource(&r.subresource).is_some()
            || find_connector(&self.resources.connectors, r).is_some();
        if long && info.verb != "watch" {
            route.verb = "CONNECT";
        }
        if sub_known {
            route.subresource.clone_from(&r.subresource);
        }
        route.scope = match (r.named, r.namespace.is_empty()) {
            (true, _) => "resource",
            (false, false) => "namespace",
            (false, true) => "cluster",
        };
        route.group.clone_from(&r.group);
        route.version.clone_from(&r.version);
        route.resource.clone_from(&r.resource);
        route
    }

    async fn run_filters(
        &self,
        peer: &PeerCertificates,
        info: RequestInfo,
        query: QueryParams,
        mut request: Request<Incoming>,
        route: &RequestLabels,
        long: bool,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let probe = info.is_probe();
        if self.draining.is_cancelled() && !probe {
            self.metrics.count_termination(route.verb, "429");
            let text = "the server is shutting down, please try again later";
            return Err(Status::too_many_requests(text, 1));
        }
        if let Some(webhook) = self.options.webhook_handlers.get(&*info.path)
            && info.verb == "post"
        {
            let _permit = self.acquire_inflight_permit(true, route)?;
            let read = request_body::read_body(request.into_body());
            let limit = time_limit(&query, self.options.request_timeout);
            let read = tokio::time::timeout(limit, read).await;
            let body = read.map_err(|_| {
                Status::timeout("the AdmissionReview was not received within the allotted timeout")
            })??;
            return admission_review::serve_admission_review(*webhook, &body);
        }
        let admitted = self
            .authenticate_and_authorize(peer, &info, &mut request, route, long || probe)
            .await?;
        let limit = time_limit(&query, self.options.request_timeout);
        let mut guards: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        if long {
            guards.push(Box::new(self.metrics.start_long_running(route)));
        } else {
            let mutating = info.is_mutating();
            let short = Arc::clone(&self.short_requests).try_acquire_owned().ok();
            let inflight = self.metrics.start_inflight(mutating);
            guards.push(Box::new((admitted.permit, short, inflight)));
        }
        let handled = self.dispatch(
            admitted.user,
            info,
            query,
            request,
            (!long).then_some(limit),
        );
        let mut response = if long {
            Box::pin(handled).await?
        } else {
            let text = "request did not complete within the allotted timeout";
            tokio::time::timeout(limit, Box::pin(handled))
                .await
                .map_err(|_| Status::timeout(text))??
        };
        if !response.body().is_full() {
            guards
                .into_iter()
                .for_each(|h| response.body_mut().attach_guard(h));
        }
        Ok(response)
    }

    /// Runs authentication, the in-flight limits, impersonation and authorization.
    async fn authenticate_and_authorize(
        &self,
        peer: &PeerCertificates,
        info: &RequestInfo,
        request: &mut Request<Incoming>,
        route: &RequestLabels,
        exempt: bool,
    ) -> Result<AuthorizedRequest, Status> {
        let began = Instant::now();
        let authenticated = self.authenticate(peer, request.headers()).await;
        self.metrics
            .observe_authentication(began.elapsed(), authenticated.is_ok());
        let requester = authenticated?;
        let permit = if exempt || requester.in_group(SYSTEM_PRIVILEGED_GROUP) {
            None
        } else {
            Some(self.acquire_inflight_permit(info.is_mutating(), route)?)
        };
        let user = self.impersonate(requester, request.headers()).await?;
        self.strip_credentials(request.headers_mut());
        let target = info.authorization_attributes();
        let verdict = self.authorization.authorize(&user, info.verb, target).await;
        self.metrics.count_authorization(verdict.is_ok());
        verdict?;
        Ok(AuthorizedRequest { user, permit })
    }

    fn acquire_inflight_permit(
        &self,
        mutating: bool,
        route: &RequestLabels,
    ) -> Result<OwnedSemaphorePermit, Status> {
        let pool = &self.inflight_permits[usize::from(mutating)];
        Arc::clone(pool).try_acquire_owned().map_err(|_| {
            self.metrics.count_termination(route.verb, "429");
            Status::too_many_requests("too many requests, please try again later.", 1)
        })
    }

    async fn authenticate(
        &self,
        peer: &PeerCertificates,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        let shown = |show: &mut dyn FnMut(&str, &[u8])| {
            for (name, value) in headers {
                show(name.as_str(), value.as_bytes());
            }
        };
        let credentials = RequestCredentials {
            peer: Some(peer),
            bearer: bearer_token(headers)?,
            headers: Some(&shown),
        };
        let denied = match self.authentication.authenticate(credentials).await {
            Ok(user) => return Ok(user),
            Err(denied) => denied,
        };
        Err(match denied {
            AuthenticationError::InvalidCredential(refused) => {
                tracing::debug!(%refused, "credentials refused");
                Status::unauthorized()
            }
            AuthenticationError::Undecided(status) => *status,
        })
    }

    /// Turns 404 into 503 while the server is not fully synced: the object may exist,
    /// and a garbage collector that gets 404 for an owner deletes its dependents
    /// (contract D5.4).
    fn mask_not_found(&self, status: Status) -> Status {
        if status.code != 404 {
            return status;
        }
        match self
            .options
            .resources_installed
            .as_ref()
            .map(|check| check())
        {
            Some(Err(why)) => {
                tracing::debug!(%why, "returning 503 instead of 404");
                Status::unavailable("the request has been made before all resources have been installed, please try again").with_retry_after(1)
            }
            _ => status,
        }
    }

    /// Removes the credential headers, so that they reach neither handlers nor proxied
    /// servers.
    fn strip_credentials(&self, headers: &mut HeaderMap) {
        let credentials: Vec<_> = headers
            .keys()
            .filter(|name| self.authentication.is_credential(name.as_str()))
            .cloned()
            .collect();
        for name in credentials {
            headers.remove(name);
        }
    }

    async fn impersonate(
        &self,
        requester: Arc<UserInfo>,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        let pairs = headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("impersonate-"))
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let Some(impersonated) = impersonation::parse_impersonation_headers(pairs)? else {
            return Ok(requester);
        };
        for target in impersonated.required_access() {
            self.authorization
                .authorize(&requester, "impersonate", target)
                .await?;
        }
        Ok(Arc::new(impersonated.into_user_info()))
    }

    async fn dispatch(
        &self,
        user: Arc<UserInfo>,
        info: RequestInfo,
        query: QueryParams,
        request: Request<Incoming>,
        limit: Option<Duration>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        match info.resource {
            Some(resource) => {
                let call = ResourceCall {
                    user,
                    verb: info.verb,
                    resource,
                    query,
                    deadline: limit.map(|l| tokio::time::Instant::now() + l),
                };
                Box::pin(self.resources.serve(call, request)).await
            }
            None if matches!(info.verb, "get" | "head") => {
                self.serve_non_resource_path(&info.path, &query, request.headers())
                    .await
            }
            None => Err(Status::method_not_allowed()),
        }
    }

    /// Serves GET of a non-resource path.
    async fn serve_non_resource_path(
        &self,
        path: &str,
        query: &QueryParams,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        if let Some(answer) = health::serve(&self.options.checks, &self.metrics, path, query) {
            return Ok(answer);
        }
        if let Some(answer) = self.documents.discovery(headers, query, path) {
            return Ok(answer);
        }
        let form = || negotiation::negotiate(headers, query, false);
        match path {
            "/version" => Ok(response_writers::write_value(
                200,
                &self.options.version.to_json(),
                form()?,
            )),
            "/metrics" => Ok(prometheus_response(self.metrics.text())),
            "/metrics/slis" => Ok(prometheus_response(self.metrics.slis_text())),
            "/openapi/v2" => self.documents.v2(headers).await,
            "/" => Ok(response_writers::write_paths(
                &self.non_resource_paths(),
                form()?,
            )),
            "/openid/v1/jwks" => {
                let jwks = self.token_issuer()?.jwks();
                Ok(response_writers::write_value(
                    200,
                    &jwks,
                    ResponseFormat::PLAIN_JSON,
                ))
            }
            "/.well-known/openid-configuration" => {
                let issuer = self.token_issuer()?;
                let uri = format!("{}/openid/v1/jwks", issuer.issuer());
                Ok(response_writers::write_value(
                    200,
                    &issuer.openid_configuration(&uri),
                    ResponseFormat::PLAIN_JSON,
                ))
            }
            _ => match path.strip_prefix("/openapi/v3") {
                Some("") => self.documents.v3(headers, query, "").await,
                Some(below) if below.starts_with('/') => {
                    self.documents.v3(headers, query, &below[1..]).await
                }
                _ => Err(Status::path_not_found()),
            },
        }
    }

    fn token_issuer(&self) -> Result<&auth::token::TokenSigner, Status> {
        let issuer = self.authentication.token_issuer();
        issuer.ok_or_else(Status::path_not_found)
    }

    fn non_resource_paths(&self) -> Vec<String> {
        let mut all = self.documents.paths();
        let fixed = [
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ];
        all.extend(fixed.map(str::to_owned));
        if self.authentication.token_issuer().is_some() {
            let issuing = ["/.well-known/openid-configuration", "/openid/v1/jwks"];
            all.extend(issuing.map(str::to_owned));
        }
        for check in &self.options.checks {
            all.push(format!("/readyz/{}", check.name));
            if check.live {
                all.push(format!("/livez/{}", check.name));
                all.push(format!("/healthz/{}", check.name));
            }
        }
        all.sort_unstable();
        all
    }
}

/// Metrics in Prometheus' text format.
fn prometheus_response(text: Vec<u8>) -> Response<ServerResponseBody> {
    let mut response = Response::new(ServerResponseBody::full(text));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}

/// The bearer token of a request, undecoded. Other schemes are ignored, as in
/// kube-apiserver; a header whose scheme is not UTF-8, or a second header, is refused.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&[u8]>, Status> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Status::unauthorized());
    }
    let value = value.as_bytes().trim_ascii();
    let end = value.iter().position(|b| *b == b' ');
    let (scheme, token) = value.split_at(end.unwrap_or(value.len()));
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(Some(token.trim_ascii()).filter(|t| !t.is_empty()));
    }
    match std::str::from_utf8(value) {
        Ok(_) => Ok(None),
        Err(_) => Err(Status::unauthorized()),
    }
}
