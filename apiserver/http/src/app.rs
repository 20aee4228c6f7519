//! The handler chain: runs every request through the filters in kube-apiserver's order
//! (`DefaultBuildHandlerChain`) and serves the non-resource paths.
//!
//! request ──► drain ──► authentication ──► in-flight limits ──► impersonation ──► authorization ──► deadline ──► handler

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::rbac::Target;
use auth::{Authentication, Authorization, Credentials, Denied, Peer, impersonation};
use futures_util::FutureExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use jiff::Timestamp;
use machinery::time::Clock;
use machinery::user::MASTERS;
use machinery::{Status, UserInfo};
use registry::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::connect::{Connect, Tell};
use crate::documents::Documents;
use crate::ending::{Ending, Leaving};
use crate::health;
use crate::metrics::{Metrics, Observation, Route, verb_label};
use crate::negotiation::{self, Form};
use crate::requestinfo::{self, Query, RequestInfo, Resource};
use crate::resource::{Call, time_limit};
use crate::{Options, decode, reply, review};

/// Bound on short requests in flight; it exceeds what the connections' streams allow.
const SHORT: u32 = 1 << 24;

/// Subresources whose proxied requests are long-running (kube-apiserver's
/// `--long-running-request-regexp` as Karmada sets it).
const LASTING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// Serves every request of every connection of one listener.
pub(crate) struct App {
    registry: Arc<Registry>,
    authentication: Authentication,
    authorization: Authorization,
    pub(crate) metrics: Arc<Metrics>,
    documents: Documents,
    options: Options,
    /// Permits for requests in flight: read-only, then mutating.
    inflight: [Arc<Semaphore>; 2],
    /// Cancelled when shutdown starts: from then on new requests get 429.
    pub(crate) draining: CancellationToken,
    pub(crate) ending: Ending,
    /// One permit per request in flight that is neither a watch nor another stream.
    pub(crate) short: Arc<Semaphore>,
}

/// The authorized user and the in-flight permit, which is held until the reply is sent.
struct Admitted {
    user: Arc<UserInfo>,
    permit: Option<OwnedSemaphorePermit>,
}

impl App {
    pub(crate) fn new(
        registry: Arc<Registry>,
        authentication: Authentication,
        authorization: Authorization,
        options: Options,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            documents: Documents::new(Arc::clone(&registry), options.clock.now()),
            inflight: [options.max_readonly, options.max_mutating]
                .map(|n| Arc::new(Semaphore::new(n))),
            registry,
            authentication,
            authorization,
            metrics,
            options,
            draining: CancellationToken::new(),
            ending: Ending::default(),
            short: Arc::new(Semaphore::new(SHORT as usize)),
        })
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.options.clock)
    }

    pub(crate) fn leaving(&self) -> Leaving {
        self.ending.join()
    }

    /// Waits until no short request is in flight, at most for the request timeout.
    pub(crate) async fn short_over(&self) {
        let all = self.short.acquire_many(SHORT);
        let _ = tokio::time::timeout(self.options.request_timeout, all).await;
    }

    /// Fails with 403 when the authorizer denies the request.
    pub(crate) async fn authorize(
        &self,
        user: &UserInfo,
        verb: &str,
        target: Target<'_>,
    ) -> Result<(), Status> {
        self.authorization.authorize(user, verb, target).await
    }

    pub(crate) fn connector(&self, r: &Resource) -> Option<&Arc<dyn Connect>> {
        if r.subresource.is_empty() || !r.named {
            return None;
        }
        let key = (r.group.clone(), r.resource.clone(), r.subresource.clone());
        self.options.connectors.get(&key)
    }

    pub(crate) fn teller(&self, r: &Resource) -> Option<&Arc<dyn Tell>> {
        if r.subresource.is_empty() {
            return None;
        }
        let key = (r.group.clone(), r.resource.clone(), r.subresource.clone());
        self.options.tellers.get(&key)
    }

    /// Serves one request. Errors and panics of the handler become a `Status` reply.
    pub(crate) async fn serve(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let began = Instant::now();
        let query = Query::parse(request.uri().query());
        let form = negotiation::reply(request.headers(), &query, false).unwrap_or(Form::PLAIN);
        let info = requestinfo::parse(request.method(), request.uri().path(), &query);
        let (route, mut response) = match info {
            Ok(info) => {
                let long = self.long_running(request.method(), &info, &query);
                let route = self.route(&info, &query, long);
                let handled = self.filtered(&peer, info, query, request, &route, long);
                let response = match AssertUnwindSafe(handled).catch_unwind().await {
                    Ok(Ok(response)) => response,
                    Ok(Err(status)) => reply::status(&self.unless_whole(status), form),
                    Err(_) => {
                        self.metrics.aborts.inc();
                        let text =
                            "This request caused apiserver to panic. Look in the logs for details.";
                        reply::status(&Status::internal(text), form)
                    }
                };
                (route, response)
            }
            Err(status) => (Route::default(), reply::status(&status, form)),
        };
        let code = response.status().as_u16();
        let long = matches!(route.verb, "WATCH" | "CONNECT") && code < 300;
        let took = (!long).then(|| began.elapsed());
        let size = http_body::Body::size_hint(response.body()).exact();
        if response.body().is_full() || long {
            self.metrics.observe(&route, code, took, size);
        } else {
            let observation = Observation {
                metrics: Arc::clone(&self.metrics),
                route,
                code,
                since: took.map(|_| began),
                size,
            };
            response.body_mut().keep(observation);
        }
        response
    }

    /// Whether a request is exempt from the deadline. A proxied request is classified
    /// by the path that the proxy forwards to.
    fn long_running(&self, method: &Method, info: &RequestInfo, query: &Query) -> bool {
        let Some(r) = &info.resource else {
            return false;
        };
        if info.verb == "watch" {
            return true;
        }
        match (self.connector(r), r.subresource.as_str()) {
            (None, _) => false,
            (_, "log") => query.flag("follow"),
            (_, "proxy") => requestinfo::parse(method, &r.tail, query).is_ok_and(|inner| {
                let lasts = |i: &Resource| LASTING.contains(&i.subresource.as_str());
                inner.verb == "watch" || inner.resource.as_ref().is_some_and(lasts)
            }),
            _ => true,
        }
    }

    fn route(&self, info: &RequestInfo, query: &Query, long: bool) -> Route {
        let verb = verb_label(info.verb);
        let mut route = Route {
            verb,
            dry_run: query.get("dryRun") == Some("All"),
            ..Route::default()
        };
        let Some(r) = &info.resource else {
            return route;
        };
        let table = self.registry.table();
        let Some(resource_info) = table.lookup(&r.group, &r.version, &r.resource) else {
            return route;
        };
        let sub_known =
            resource_info.subresource(&r.subresource).is_some() || self.connector(r).is_some();
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

    async fn filtered(
        &self,
        peer: &Peer,
        info: RequestInfo,
        query: Query,
        mut request: Request<Incoming>,
        route: &Route,
        long: bool,
    ) -> Result<Response<Body>, Status> {
        let probe = is_probe(&info.path) && info.resource.is_none();
        if self.draining.is_cancelled() && !probe {
            self.metrics.terminated(route.verb, "429");
            let text = "the server is shutting down, please try again later";
            return Err(Status::too_many_requests(text, 1));
        }
        if let Some(webhook) = self.options.webhooks.get(&*info.path)
            && info.verb == "post"
        {
            let _permit = self.permit(true, route)?;
            let read = decode::read(request.into_body());
            let limit = time_limit(&query, self.options.request_timeout);
            let read = tokio::time::timeout(limit, read).await;
            let body = read.map_err(|_| {
                Status::timeout("the AdmissionReview was not received within the allotted timeout")
            })??;
            return review::answer(*webhook, &body);
        }
        let admitted = self
            .admit(peer, &info, &mut request, route, long || probe)
            .await?;
        let limit = time_limit(&query, self.options.request_timeout);
        let mut guards: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
        if long {
            guards.push(Box::new(self.metrics.long_running(route)));
        } else {
            let mutating = mutating(info.verb);
            let short = Arc::clone(&self.short).try_acquire_owned().ok();
            let inflight = self.metrics.inflight(mutating);
            guards.push(Box::new((admitted.permit, short, inflight)));
        }
        let handled = self.handle(
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
            guards.into_iter().for_each(|h| response.body_mut().keep(h));
        }
        Ok(response)
    }

    /// Runs authentication, the in-flight limits, impersonation and authorization.
    async fn admit(
        &self,
        peer: &Peer,
        info: &RequestInfo,
        request: &mut Request<Incoming>,
        route: &Route,
        exempt: bool,
    ) -> Result<Admitted, Status> {
        let began = Instant::now();
        let authenticated = self.authenticated(peer, request.headers()).await;
        self.metrics
            .authenticated(began.elapsed(), authenticated.is_ok());
        let requester = authenticated?;
        let permit = if exempt || requester.in_group(MASTERS) {
            None
        } else {
            Some(self.permit(mutating(info.verb), route)?)
        };
        let user = self.impersonated(requester, request.headers()).await?;
        self.strip_credentials(request.headers_mut());
        let target = match &info.resource {
            Some(r) => resource_target(r),
            None => Target::Path(&info.path),
        };
        let verdict = self.authorize(&user, info.verb, target).await;
        self.metrics.authorized(verdict.is_ok());
        verdict?;
        Ok(Admitted { user, permit })
    }

    fn permit(&self, mutating: bool, route: &Route) -> Result<OwnedSemaphorePermit, Status> {
        let pool = &self.inflight[usize::from(mutating)];
        Arc::clone(pool).try_acquire_owned().map_err(|_| {
            self.metrics.terminated(route.verb, "429");
            Status::too_many_requests("too many requests, please try again later.", 1)
        })
    }

    async fn authenticated(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        let shown = |show: &mut dyn FnMut(&str, &[u8])| {
            for (name, value) in headers {
                show(name.as_str(), value.as_bytes());
            }
        };
        let credentials = Credentials {
            peer: Some(peer),
            bearer: bearer(headers)?,
            headers: Some(&shown),
        };
        let denied = match self.authentication.authenticate(credentials).await {
            Ok(user) => return Ok(user),
            Err(denied) => denied,
        };
        Err(match denied {
            Denied::Refused(refused) => {
                tracing::debug!(%refused, "credentials refused");
                Status::unauthorized()
            }
            Denied::Unknown(status) => *status,
        })
    }

    /// Turns 404 into 503 while the server is not fully synced: the object may exist,
    /// and a garbage collector that gets 404 for an owner deletes its dependents
    /// (contract D5.4).
    fn unless_whole(&self, status: Status) -> Status {
        if status.code != 404 {
            return status;
        }
        match self.options.whole.as_ref().map(|check| check()) {
            Some(Err(why)) => {
                tracing::debug!(%why, "returning 503 instead of 404");
                Status::unavailable("the request has been made before all resources have been installed, please try again").retry_after(1)
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

    async fn impersonated(
        &self,
        requester: Arc<UserInfo>,
        headers: &HeaderMap,
    ) -> Result<Arc<UserInfo>, Status> {
        let pairs = headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("impersonate-"))
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let Some(impersonated) = impersonation::wanted(pairs)? else {
            return Ok(requester);
        };
        for target in impersonated.requires() {
            self.authorize(&requester, "impersonate", target).await?;
        }
        Ok(Arc::new(impersonated.user()))
    }

    async fn handle(
        &self,
        user: Arc<UserInfo>,
        info: RequestInfo,
        query: Query,
        request: Request<Incoming>,
        limit: Option<Duration>,
    ) -> Result<Response<Body>, Status> {
        match info.resource {
            Some(resource) => {
                let call = Call {
                    user,
                    verb: info.verb,
                    resource,
                    query,
                    deadline: limit.map(|l| tokio::time::Instant::now() + l),
                };
                Box::pin(self.resource(call, request)).await
            }
            None if matches!(info.verb, "get" | "head") => {
                self.path(&info.path, &query, request.headers()).await
            }
            None => Err(Status::method_not_allowed()),
        }
    }

    /// Serves GET of a non-resource path.
    async fn path(
        &self,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        if let Some(answer) = health::answer(&self.options.checks, &self.metrics, path, query) {
            return Ok(answer);
        }
        if let Some(answer) = self.documents.discovery(headers, query, path) {
            return Ok(answer);
        }
        let form = || negotiation::reply(headers, query, false);
        match path {
            "/version" => Ok(reply::value(200, &self.options.version.document(), form()?)),
            "/metrics" => Ok(exposition(self.metrics.text())),
            "/metrics/slis" => Ok(exposition(self.metrics.slis())),
            "/openapi/v2" => self.documents.v2(headers).await,
            "/" => Ok(reply::paths(&self.all_paths(), form()?)),
            "/openid/v1/jwks" => {
                let jwks = self.issuer()?.jwks();
                Ok(reply::value(200, &jwks, Form::PLAIN))
            }
            "/.well-known/openid-configuration" => {
                let issuer = self.issuer()?;
                let uri = format!("{}/openid/v1/jwks", issuer.issuer());
                Ok(reply::value(200, &issuer.discovery(&uri), Form::PLAIN))
            }
            _ => match path.strip_prefix("/openapi/v3") {
                Some("") => self.documents.v3(headers, query, "").await,
                Some(below) if below.starts_with('/') => {
                    self.documents.v3(headers, query, &below[1..]).await
                }
                _ => Err(Status::no_such_path()),
            },
        }
    }

    fn issuer(&self) -> Result<&auth::token::Signer, Status> {
        let issuer = self.authentication.issuer();
        issuer.ok_or_else(Status::no_such_path)
    }

    fn all_paths(&self) -> Vec<String> {
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
        if self.authentication.issuer().is_some() {
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

pub(crate) fn resource_target(r: &Resource) -> Target<'_> {
    Target::Resource {
        group: &r.group,
        version: &r.version,
        resource: &r.resource,
        subresource: &r.subresource,
        namespace: &r.namespace,
        name: &r.name,
    }
}

/// Metrics in Prometheus' text format.
fn exposition(text: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}

fn mutating(verb: &str) -> bool {
    !matches!(verb, "get" | "list" | "watch" | "head" | "options")
}

fn is_probe(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|p| path.starts_with(p))
}

/// The bearer token of a request, undecoded. Other schemes are ignored, as in
/// kube-apiserver; a header whose scheme is not UTF-8, or a second header, is refused.
fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, Status> {
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
