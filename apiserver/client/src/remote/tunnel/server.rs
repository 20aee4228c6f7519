//! The agent's end of a tunnel: passes the control plane's requests on to the member.
//!
//! The agent adds its own credentials, which never leave it, and passes nothing on that does
//! not impersonate a user: what a user may do is what both the agent's right to impersonate
//! and the member's own authorization allow.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flotilla_metrics::Gauge;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use machinery::Status;
use tokio::io::copy_bidirectional_with_sizes;

use super::dial::TunnelStream;
use super::{MAX_TUNNEL_STREAMS, UPGRADE_METHOD_HEADER};
use crate::remote::body::RequestBody;
use crate::remote::config::{Http2FlowControl, RestConfig, RestConfigError};
use crate::remote::dial::HyperExecutor;
use crate::remote::forward::{ForwardError, RequestForwarder};
use crate::remote::request::IMPERSONATE_USER;
use crate::tasks::TaskGroup;

/// A control plane that does not answer a ping is considered gone after 15 + 15 seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The bytes that a request may send unread; a connection holds those of all its streams.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const SEND_BUFFER_BYTES: usize = 64 << 10;
const MAX_HEADER_BYTES: u32 = 64 << 10;
const COPY_BUFFER_BYTES: usize = 16 << 10;
static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

type TunnelBody = UnsyncBoxBody<Bytes, hyper::Error>;
type TunnelResponse = Response<TunnelBody>;

/// Serves the tunnels of an agent.
pub struct TunnelServer {
    cluster: String,
    member: RequestForwarder,
    open_streams: Gauge,
}

/// A stream counts as open until this is dropped.
struct OpenStream(Gauge);

impl OpenStream {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl TunnelServer {
    /// `tasks` owns the connections to the member; `open_streams` counts its requests.
    pub fn new(
        cluster: &str,
        mut member: RestConfig,
        open_streams: Gauge,
        tasks: &TaskGroup,
    ) -> Result<Arc<Self>, RestConfigError> {
        member.flow_control = Http2FlowControl::INDEPENDENT_READERS;
        Ok(Arc::new(Self {
            cluster: cluster.to_owned(),
            member: RequestForwarder::new(member, tasks)?,
            open_streams,
        }))
    }

    /// Serves a tunnel until it ends or the tasks, which own its streams, are stopped.
    pub async fn serve(
        self: &Arc<Self>,
        tunnel: TunnelStream,
        tasks: &TaskGroup,
    ) -> Result<(), hyper::Error> {
        let service = service_fn(|request| {
            let (server, tasks) = (Arc::clone(self), tasks.clone());
            async move { Ok::<_, Infallible>(server.respond(request, &tasks).await) }
        });
        let connection = http2::Builder::new(HyperExecutor::new(tasks))
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
            .max_concurrent_streams(MAX_TUNNEL_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(STREAM_WINDOW_BYTES * MAX_TUNNEL_STREAMS)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_header_list_size(MAX_HEADER_BYTES)
            .enable_connect_protocol()
            .serve_connection(TokioIo::new(tunnel.stream), service);
        match tasks.shutdown().run_until_triggered(connection).await {
            Some(ended) => ended,
            None => Ok(()),
        }
    }

    async fn respond(&self, request: Request<Incoming>, tasks: &TaskGroup) -> TunnelResponse {
        let user = request.headers().get(IMPERSONATE_USER);
        if user.is_none_or(HeaderValue::is_empty) {
            let text = format!(
                "the agent of cluster {:?} passes on no request without a user to impersonate",
                self.cluster
            );
            return status_response(&Status::failure(403, "Forbidden", text));
        }
        let answered = match request.extensions().get::<Protocol>() {
            Some(protocol) => {
                let protocol = HeaderValue::from_str(protocol.as_str());
                self.upgrade(request, protocol.ok(), tasks).await
            }
            None => self.forward(request).await,
        };
        answered.unwrap_or_else(|error| self.unreachable_response(&error))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<TunnelResponse, ForwardError> {
        let open = OpenStream::new(&self.open_streams);
        let (parts, body) = request.into_parts();
        let body = match body.is_end_stream() {
            true => RequestBody::full(Bytes::new()),
            false => RequestBody::streamed(body),
        };
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = parts.method;
        *outgoing.uri_mut() = path_of(&parts.uri);
        *outgoing.headers_mut() = member_headers(parts.headers);
        let response = self.member.send(outgoing).await?;
        Ok(end_to_end(response).map(|body| {
            body.map_frame(move |frame| {
                let _counted = &open;
                frame
            })
            .boxed_unsync()
        }))
    }

    /// Upgrades a connection to the member, and copies bytes between it and the stream.
    async fn upgrade(
        &self,
        mut request: Request<Incoming>,
        protocol: Option<HeaderValue>,
        tasks: &TaskGroup,
    ) -> Result<TunnelResponse, ForwardError> {
        let open = OpenStream::new(&self.open_streams);
        let stream = hyper::upgrade::on(&mut request);
        let (parts, _) = request.into_parts();
        let mut headers = member_headers(parts.headers);
        let method = headers.remove(UPGRADE_METHOD_HEADER);
        let method = method.and_then(|m| Method::from_bytes(m.as_bytes()).ok());
        let (Some(method), Some(protocol)) = (method, protocol) else {
            let status = Status::bad_request("the upgrade names no method or protocol");
            return Ok(status_response(&status));
        };
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
        let mut outgoing = Request::new(RequestBody::full(Bytes::new()));
        *outgoing.method_mut() = method;
        *outgoing.uri_mut() = path_of(&parts.uri);
        *outgoing.headers_mut() = headers;
        let mut response = self.member.upgrade(outgoing).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let member = hyper::upgrade::on(&mut response);
            let shutdown = tasks.shutdown().clone();
            tasks.spawn(async move {
                shutdown
                    .run_until_triggered(copy_upgraded(stream, member))
                    .await;
                drop(open);
            });
            let mut accepted = end_to_end(response).map(|_| empty_body());
            *accepted.status_mut() = StatusCode::OK;
            return Ok(accepted);
        }
        if response.status().is_success() {
            let text = format!("cluster {:?} did not switch protocols", self.cluster);
            return Ok(status_response(&Status::failure(502, "BadGateway", text)));
        }
        Ok(end_to_end(response).map(|body| body.boxed_unsync()))
    }

    fn unreachable_response(&self, error: &ForwardError) -> TunnelResponse {
        let text = match error.unprocessed {
            true => format!("the agent of cluster {:?} cannot reach it", self.cluster),
            false => format!("cluster {:?} did not respond to its agent", self.cluster),
        };
        let text = format!("{text}: {error}");
        let status = Status::failure(503, "ServiceUnavailable", text.clone());
        status_response(&status.with_cause("ClusterNotReachable", text, ""))
    }
}

fn path_of(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
}

/// The headers for the member; the agent's own credentials are added later.
fn member_headers(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(AUTHORIZATION);
    headers.remove(HOST);
    headers
}

/// Removes the headers of a connection, which HTTP/2 does not have.
fn end_to_end<B>(mut response: Response<B>) -> Response<B> {
    for name in [&CONNECTION, &KEEP_ALIVE, &TE, &TRANSFER_ENCODING, &UPGRADE] {
        response.headers_mut().remove(name);
    }
    response
}

fn empty_body() -> TunnelBody {
    full_body(Bytes::new())
}

fn full_body(bytes: Bytes) -> TunnelBody {
    Full::new(bytes).map_err(|e| match e {}).boxed_unsync()
}

fn status_response(status: &Status) -> TunnelResponse {
    let body = Bytes::from(status.to_json().to_string());
    let mut response = Response::new(full_body(body));
    *response.status_mut() =
        StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Copies both ways; a side that ends closes only its own direction.
async fn copy_upgraded(stream: OnUpgrade, member: OnUpgrade) {
    let (stream, member) = match tokio::try_join!(stream, member) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "upgrade failed");
            return;
        }
    };
    let (mut stream, mut member) = (TokioIo::new(stream), TokioIo::new(member));
    let copied = copy_bidirectional_with_sizes(
        &mut stream,
        &mut member,
        COPY_BUFFER_BYTES,
        COPY_BUFFER_BYTES,
    );
    if let Err(error) = copied.await {
        tracing::debug!(%error, "an upgraded connection failed");
    }
}
