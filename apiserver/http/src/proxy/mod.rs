//! Serves `clusters/{name}/proxy/{path}`: forwards requests to a member cluster and
//! impersonates the user there.
//!
//! request ──► permit of the cluster's backend ──► path, headers ──► member
//!         ◄── streamed body, or a tunnel after 101 ◄──
//!
//! The request was authorized on `clusters/proxy`. The client gets the member's
//! response, or a `Status` when the member is unreachable. Nothing is buffered: bodies
//! are forwarded frame by frame in both directions, tunnels byte by byte. A member in pull
//! mode is reached through the tunnel of its agent. Karmada:
//! `pkg/registry/cluster/storage/proxy.go`, `pkg/util/proxy`.

mod agent_tunnel;
mod aggregate;
mod connector;
mod fleet;
mod global_proxy;
mod headers;
mod host_control_plane;
mod member_reader;
mod member_responses;
mod member_search;
mod member_watch;
mod native_request;
mod path;
mod proxy_metrics;
mod request_guard;
mod stream;
mod tunnel;
mod update_body;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use client::TaskGroup;
use client::remote::{ForwardError, RequestBody as ForwardedRequestBody};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use karmada_api::resources::CLUSTERS;
use machinery::{Status, UserInfo};
use members::{ClusterProxyBackends, ClusterProxyError};

use crate::own_requests::ControlPlaneBackend;
use crate::request_body;
use crate::request_memory::MemoryCharge;
use crate::response_body::ServerResponseBody;
use crate::subresources::SubresourceConnectRequest;
pub use agent_tunnel::{AGENT_TUNNEL, AgentTunnelEndpoint, TunnelRefusalCallback};
pub use fleet::{FleetView, NamedProxies};
pub use global_proxy::{GLOBAL_PROXY, GlobalProxy};
pub use host_control_plane::HostControlPlane;
pub use member_reader::{MemberRead, MemberReader, MemberReply, is_unserved_path};
pub use member_search::{MemberSearch, SEARCH};
pub use native_request::MemberResourceReader;
use proxy_metrics::ClusterProxyMetrics;
use request_guard::ProxyRequestGuard;
use stream::{BodyCutoff, ForwardedBody};
use tunnel::TunnelUpgrades;

/// Group, resource and subresource under which [`ClusterProxy`] is registered.
pub const CLUSTER_PROXY: (&str, &str, &str) = ("cluster.karmada.io", "clusters", "proxy");

/// Forwards requests to member clusters.
pub struct ClusterProxy {
    backends: ClusterProxyBackends,
    /// Serves what is no member's.
    control_plane: Arc<dyn ControlPlaneBackend>,
    metrics: ClusterProxyMetrics,
    /// Owns the tunnels.
    tasks: TaskGroup,
}

/// The member's response, with both ends of a tunnel when the member agreed to upgrade.
struct ProxyReply {
    response: Response<ServerResponseBody>,
    tunnel: Option<TunnelUpgrades>,
}

/// The request to send to the member.
struct MemberRequest {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    body: MemberRequestBody,
}

enum MemberRequestBody {
    Streamed(Incoming),
    Replaced(Bytes),
}

/// Replaces the body of a request, which has a content type, before it is sent to the member.
type BodyTransform<'a> = &'a (dyn Fn(Bytes, &str) -> TransformedBody + Send + Sync);

/// A body that takes the place of another one.
struct TransformedBody {
    bytes: Bytes,
    /// `None`: that of the body before.
    content_type: Option<HeaderValue>,
}

impl ClusterProxy {
    /// `tasks` owns the tunnels; the metrics are registered with `registry`.
    pub fn new(
        gateways: ClusterProxyBackends,
        control_plane: Arc<dyn ControlPlaneBackend>,
        tasks: &TaskGroup,
        registry: &flotilla_metrics::MetricsRegistry,
    ) -> Arc<Self> {
        Arc::new(Self {
            backends: gateways,
            control_plane,
            metrics: ClusterProxyMetrics::new(registry),
            tasks: tasks.child(),
        })
    }

    async fn acquire(&self, cluster: &str) -> Result<ProxyRequestGuard, Status> {
        let permit = self
            .backends
            .acquire(cluster)
            .await
            .map_err(backend_error_status)?;
        let metrics = self.metrics.start_request(permit.cluster());
        Ok(ProxyRequestGuard { permit, metrics })
    }

    async fn forward(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        self.forward_transformed(connection, None).await
    }

    /// Forwards a request whose body is read and replaced.
    async fn forward_transformed(
        &self,
        connection: SubresourceConnectRequest,
        transform: Option<BodyTransform<'_>>,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let path = path::member_path(&connection.subpath, connection.request.uri().query())?;
        let guard = self.acquire(&connection.name).await?;
        let start = Instant::now();
        let shutdown = connection.shutdown.clone();
        let result = self.send(connection, path, &guard, transform).await;
        let code = match &result {
            Ok(proxied) => proxied.response.status().as_u16(),
            Err(status) => status.code,
        };
        guard.metrics.observe_response(code, start.elapsed());
        let ProxyReply {
            mut response,
            tunnel,
        } = result?;
        match tunnel {
            Some(ends) => {
                let removed = guard.permit.cluster_removed().clone();
                self.tasks.spawn(async move {
                    shutdown
                        .run_until_triggered(
                            removed.run_until_triggered(tunnel::run_tunnel(ends, guard)),
                        )
                        .await;
                });
            }
            None => response.body_mut().attach_guard(guard),
        }
        Ok(response)
    }

    async fn send(
        &self,
        connection: SubresourceConnectRequest,
        path: PathAndQuery,
        guard: &ProxyRequestGuard,
        transform: Option<BodyTransform<'_>>,
    ) -> Result<ProxyReply, Status> {
        let user = connection.user;
        let end = BodyCutoff {
            deadline: connection.deadline,
            shutdown: connection.shutdown,
        };
        let mut request = connection.request;
        let protocol = headers::requested_upgrade(&request);
        let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let scope = self.backends.impersonation_scope(&guard.permit).await;
        let headers = &parts.headers;
        let mut headers =
            headers::build_request_headers(headers, &user, &scope, protocol.as_ref())?;
        let body = match transform {
            Some(transform) => transform_body(body, transform, &mut headers, &user).await?,
            None => MemberRequestBody::Streamed(body),
        };
        let outgoing = MemberRequest {
            headers,
            method: parts.method,
            path,
            body,
        };
        let cluster = guard.permit.cluster().to_owned();
        let result = match client {
            Some(client) => self.forward_upgrade(outgoing, client, end, guard).await,
            None => self.forward_streaming(outgoing, end, guard).await,
        };
        let mut proxied = result.map_err(|error| self.unreachable_status(&cluster, &error))?;
        let response = &mut proxied.response;
        if response.status() == StatusCode::UNAUTHORIZED {
            // The member refused our token, not the user's credentials.
            let error = format!("cluster {cluster:?} refused the token of its impersonator");
            return Err(service_unavailable(error, "ImpersonatorRefused"));
        }
        rewrite_locations(response, &cluster, guard);
        Ok(proxied)
    }

    /// Sends an ordinary request; its response body is streamed.
    async fn forward_streaming(
        &self,
        outgoing: MemberRequest,
        end: BodyCutoff,
        guard: &ProxyRequestGuard,
    ) -> Result<ProxyReply, ForwardError> {
        let sent_bytes = guard.metrics.sent_bytes.clone();
        let body = match outgoing.body {
            MemberRequestBody::Replaced(bytes) => {
                sent_bytes.inc_by(bytes.len() as u64);
                ForwardedRequestBody::full(bytes)
            }
            MemberRequestBody::Streamed(body) if body.is_end_stream() => {
                ForwardedRequestBody::full(Bytes::new())
            }
            MemberRequestBody::Streamed(body) => {
                ForwardedRequestBody::streamed(body.map_frame(move |frame| {
                    sent_bytes.inc_by(frame.data_ref().map_or(0, |d| d.len() as u64));
                    frame
                }))
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = Uri::from(outgoing.path);
        *request.headers_mut() = outgoing.headers;
        let response = guard.permit.forwarder().send(request).await?;
        let received = guard.metrics.received_bytes.clone();
        Ok(ProxyReply {
            response: response
                .map(|body| ServerResponseBody::proxied(ForwardedBody::new(body, received, end))),
            tunnel: None,
        })
    }

    /// Sends an upgrade request. When the member switches protocols, the response holds
    /// both ends of the tunnel.
    async fn forward_upgrade(
        &self,
        outgoing: MemberRequest,
        client: OnUpgrade,
        end: BodyCutoff,
        guard: &ProxyRequestGuard,
    ) -> Result<ProxyReply, ForwardError> {
        let mut request = Request::new(ForwardedRequestBody::full(Bytes::new()));
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = Uri::from(outgoing.path);
        *request.headers_mut() = outgoing.headers;
        let mut response = guard.permit.forwarder().upgrade(request).await?;
        let tunnel =
            (response.status() == StatusCode::SWITCHING_PROTOCOLS).then(|| TunnelUpgrades {
                client,
                member: hyper::upgrade::on(&mut response),
            });
        let received = guard.metrics.received_bytes.clone();
        let pass = |body| match tunnel {
            Some(_) => ServerResponseBody::empty(),
            None => ServerResponseBody::proxied(ForwardedBody::new(body, received, end)),
        };
        Ok(ProxyReply {
            response: response.map(pass),
            tunnel,
        })
    }

    fn unreachable_status(&self, cluster: &str, error: &ForwardError) -> Status {
        let condition = self.backends.not_ready_reason(cluster);
        let last_seen = match condition.as_str() {
            "" => String::new(),
            condition => format!(" (last seen as {condition})"),
        };
        let text = match error.unprocessed {
            true => format!("cluster {cluster:?} cannot be reached: {error}{last_seen}"),
            false => format!("cluster {cluster:?} did not respond: {error}{last_seen}"),
        };
        service_unavailable(text, "ClusterNotReachable")
    }
}

/// 503 without `Retry-After`: the client decides when to retry.
fn service_unavailable(text: String, reason: &str) -> Status {
    Status::failure(503, "ServiceUnavailable", text.clone()).with_cause(reason, text, "")
}

fn backend_error_status(error: ClusterProxyError) -> Status {
    match error {
        ClusterProxyError::ClusterNotFound(name) => Status::not_found(&CLUSTERS, &name),
        ClusterProxyError::Misconfigured(text) => Status::internal(text),
        ClusterProxyError::HostApi(host_error) => {
            Status::unavailable(format!("the cluster cannot be looked up: {host_error}"))
        }
        ClusterProxyError::NoTunnel(_) => service_unavailable(error.to_string(), "NoAgentTunnel"),
        ClusterProxyError::NotPull(_) => Status::bad_request(error.to_string()),
        ClusterProxyError::TooManyRequests(_) => Status::too_many_requests(error.to_string(), 1),
    }
}

/// Reads a body and replaces it.
async fn transform_body(
    body: Incoming,
    transform: BodyTransform<'_>,
    headers: &mut HeaderMap,
    user: &UserInfo,
) -> Result<MemberRequestBody, Status> {
    let charge = MemoryCharge::of_user(user, None);
    let (body, _charge) = request_body::read_body(body, charge).await?.into_parts();
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let body = transform(body, content_type.unwrap_or(""));
    headers.insert(CONTENT_LENGTH, body.bytes.len().into());
    if let Some(content_type) = body.content_type {
        headers.insert(CONTENT_TYPE, content_type);
    }
    Ok(MemberRequestBody::Replaced(body.bytes))
}

/// Makes the locations in a member's response lead through the proxy.
fn rewrite_locations(
    response: &mut Response<ServerResponseBody>,
    cluster: &str,
    guard: &ProxyRequestGuard,
) {
    let forwarder = guard.permit.forwarder();
    let prefix = format!(
        "/apis/{}/{}/{}/{cluster}/proxy",
        CLUSTERS.group, CLUSTERS.version, CLUSTERS.resource
    );
    headers::rewrite_response_headers(response.status(), response.headers_mut(), &|location| {
        path::rewrite_location(
            location,
            forwarder.authority(),
            forwarder.base_path(),
            &prefix,
        )
    });
}
