//! [`RemoteApi`]: [`Api`] over HTTP, for a [`RestConfig`] from a kubeconfig or elsewhere.
//!
//! Every call has a timeout except the stream of a watch; its connection is checked with
//! HTTP/2 pings.

mod body;
mod config;
mod credentials;
mod decode;
mod dial;
mod discovery;
mod fence;
mod forward;
pub mod in_cluster;
pub mod kubeconfig;
mod metrics;
mod pool;
mod proxy_url;
mod raw_stream;
mod request;
mod server_connection;
mod server_verifier;
mod tables;
#[cfg(test)]
mod test_https_server;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod tunnel;

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use flotilla_tracing::start_client_span;
use futures_util::stream;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use machinery::{Object, Status};
use serde::Deserialize;
use tokio::time::Instant;

use crate::api::{
    Api, ApiCall, ApiReply, Error, ListOptions, ResourcePath, Result, WatchEvent, WatchOptions,
    WatchStream, create_each_event,
};
use crate::tasks::TaskGroup;
pub use body::RequestBody;
pub use config::{
    AuthInfo, ClientCertificate, ExecConfig, Http2FlowControl, ImpersonationConfig, Redacted,
    RestConfig, RestConfigError, TlsVerificationExceptions,
};
use decode::WatchEventDecoder;
pub use fence::NetworkSendFence;
pub use forward::{ForwardError, RequestForwarder};
use metrics::RestClientMetricsOfHost;
use pool::DeliveryStatus;
pub use pool::ResponseBody;
pub use proxy_url::ProxyUrl;
pub use raw_stream::RawResponseStream;
use request::ApiRequest;
use server_connection::ServerConnection;
pub use tables::TableWatchStream;
pub use tls::{client_config as tls_client, server_name};
pub use tunnel::{
    MAX_TUNNEL_STREAMS, TUNNEL_PROTOCOL, TUNNEL_REPLICA_HEADER, TUNNEL_WEBSOCKET_SUBPROTOCOL,
    TunnelClient, TunnelDialError, TunnelDialer, TunnelServer, TunnelStream, WebSocketRole,
    websocket_byte_stream,
};

/// The timeout of a call, without the stream of a watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A reply that is no list: one object, of at most 1.5 MiB in etcd, or a document of discovery.
const MAX_REPLY_BYTES: usize = 32 << 20;
/// A page of a list; the next request for one that is larger asks for fewer objects.
const MAX_PAGE_BYTES: usize = 64 << 20;
/// A list that is not paged: commands ask the control plane for those, nobody a member.
const MAX_LIST_BYTES: usize = 256 << 20;
/// By what the objects of a page that is too large are divided: three times from 500 to 1.
const PAGE_DIVISOR: u64 = 8;
/// The reply of a failure.
const MAX_FAILURE_BYTES: usize = 1 << 20;
/// Attempts of a call that the server asks to retry later.
const MAX_ATTEMPTS: u32 = 4;
/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);
/// How long a watch may outlive its `timeoutSeconds`.
const WATCH_GRACE: Duration = Duration::from_secs(60);

/// A client of one server. It works until its tasks are stopped.
pub struct RemoteApi {
    connection: ServerConnection,
    host: String,
    impersonation_headers: HeaderMap,
    metrics: RestClientMetricsOfHost,
}

impl RemoteApi {
    /// A client whose connections are owned by `tasks`. Nothing is dialed yet.
    pub fn new(
        config: RestConfig,
        tasks: &TaskGroup,
    ) -> std::result::Result<Self, RestConfigError> {
        let host = config.server.authority();
        let host = host.map_or_else(String::new, ToString::to_string);
        let as_user = config.impersonate.clone();
        let connection = ServerConnection::new(config, tasks)
            .map_err(|error| RestConfigError(format!("{host}: {error}")))?;
        Self::over(connection, &host, as_user.as_ref())
    }

    /// A client of the member at the other end of a tunnel, which `name` names. An agent passes on
    /// requests of users only.
    pub fn through_tunnel(
        tunnel: TunnelClient,
        name: &str,
        user: &ImpersonationConfig,
    ) -> std::result::Result<Self, RestConfigError> {
        let connection = ServerConnection::through_tunnel(tunnel, name)?;
        Self::over(connection, name, Some(user))
    }

    fn over(
        connection: ServerConnection,
        host: &str,
        as_user: Option<&ImpersonationConfig>,
    ) -> std::result::Result<Self, RestConfigError> {
        let as_user = request::impersonation_headers(as_user).map_err(RestConfigError)?;
        Ok(Self {
            connection,
            metrics: RestClientMetricsOfHost::new(host),
            host: host.to_owned(),
            impersonation_headers: as_user,
        })
    }

    pub fn config(&self) -> &RestConfig {
        self.connection.config()
    }

    /// POSTs JSON to a path outside the API, such as a webhook, without retries. A
    /// response body larger than `most` bytes is an error.
    pub async fn post(&self, path: &str, body: Bytes, most: usize) -> Result<Bytes> {
        let ask = ApiRequest::post(path.to_owned(), body);
        let response = self.send_once(&ask).await.map_err(|(error, _)| error)?;
        if !response.status().is_success() {
            return Err(self.failure_of(response).await);
        }
        self.read_body(response.into_body(), most).await
    }

    /// GETs a path once and returns the response whatever its code; a body larger than `most`
    /// bytes is an error.
    pub async fn get_response(&self, path: &str, most: usize) -> Result<Response<Bytes>> {
        let ask = ApiRequest::new(Method::GET, path.to_owned());
        let response = self.send_once(&ask).await.map_err(|(error, _)| error)?;
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(
            head,
            self.read_body(body, most).await?,
        ))
    }

    fn transport_error(&self, message: impl Into<String>) -> Error {
        Error::Transport {
            host: self.host.clone(),
            message: message.into(),
        }
    }

    /// Sends a request and repeats it, where that is safe, on 429 and 503, on 401 with
    /// fresh credentials, and once if the connection breaks.
    async fn send_with_retries(&self, ask: &ApiRequest) -> Result<Response<ResponseBody>> {
        let mut attempt = 1;
        let mut was_unauthorized = false;
        loop {
            let response = match self.send_once(ask).await {
                Ok(response) => response,
                // The connection broke before the response arrived.
                Err((error, fate)) => {
                    let harmless = ask.method == Method::GET && fate == DeliveryStatus::Unknown;
                    if harmless && attempt == 1 {
                        attempt += 1;
                        continue;
                    }
                    return Err(error);
                }
            };
            let code = response.status();
            if code == StatusCode::UNAUTHORIZED && !was_unauthorized {
                was_unauthorized = true;
                if self.connection.refresh_credentials().await {
                    continue;
                }
            }
            let Some(pause) = retry_delay(&ask.method, &response) else {
                return Ok(response);
            };
            if attempt >= MAX_ATTEMPTS {
                return Ok(response);
            }
            attempt += 1;
            drop(response);
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends once; again if the server refused the request unprocessed.
    async fn send_once(
        &self,
        ask: &ApiRequest,
    ) -> std::result::Result<Response<ResponseBody>, (Error, DeliveryStatus)> {
        match self.send_attempt(ask).await {
            Err((_, DeliveryStatus::Refused)) => self.send_attempt(ask).await,
            other => other,
        }
    }

    async fn send_attempt(
        &self,
        ask: &ApiRequest,
    ) -> std::result::Result<Response<ResponseBody>, (Error, DeliveryStatus)> {
        let credentials = self.connection.authorization_header().await;
        let request = credentials
            .and_then(|header| {
                ask.to_http_request(&self.config().server, header, &self.impersonation_headers)
            })
            .map_err(|e| (self.transport_error(e), DeliveryStatus::Unsent))?;
        let mut request = request.map(RequestBody::encoded);
        let span = start_client_span(&mut request);
        let began = Instant::now();
        let sent = self.connection.send(request).await;
        let code = sent.as_ref().ok().map(|response| response.status());
        forward::record_outcome(span, &sent);
        self.metrics
            .observe_request(&ask.method, code, began.elapsed());
        sent.map_err(|failure| (self.transport_error(failure.message), failure.delivery))
    }

    /// The body of a successful response.
    async fn fetch_body(&self, ask: &ApiRequest) -> Result<Bytes> {
        self.fetch_body_of(ask, MAX_REPLY_BYTES).await
    }

    async fn fetch_body_of(&self, ask: &ApiRequest, most: usize) -> Result<Bytes> {
        let body = self.fetch_body_within(ask, most).await?;
        body.ok_or_else(|| reply_too_large(most))
    }

    /// The body of a successful response; `None` if it has more bytes.
    async fn fetch_body_within(&self, ask: &ApiRequest, most: usize) -> Result<Option<Bytes>> {
        self.with_timeout(async {
            let response = self.send_with_retries(ask).await?;
            let code = response.status();
            if code.is_success() {
                return self.read_body_within(response.into_body(), most).await;
            }
            Err(self.failure_of(response).await)
        })
        .await
    }

    /// The body of a list. A page that is too large is asked for again with fewer objects: what
    /// a member sends does not take more memory than one page.
    async fn fetch_list(&self, at: ResourcePath<'_>, options: &ListOptions) -> Result<Bytes> {
        let mut options = options.clone();
        loop {
            let most = match options.limit {
                0 => MAX_LIST_BYTES,
                _ => MAX_PAGE_BYTES,
            };
            let ask = ApiRequest::list(at, &options);
            match self.fetch_body_within(&ask, most).await? {
                Some(body) => return Ok(body),
                None if options.limit > 1 => {
                    options.limit = options.limit.div_ceil(PAGE_DIVISOR);
                }
                None => return Err(reply_too_large(most)),
            }
        }
    }

    async fn failure_of(&self, response: Response<ResponseBody>) -> Error {
        let code = response.status();
        match self
            .read_body(response.into_body(), MAX_FAILURE_BYTES)
            .await
        {
            Ok(body) => status_from_response(code, &body).into(),
            Err(error) => error,
        }
    }

    /// The body of a successful response, to be read as it arrives.
    async fn open_body(&self, ask: &ApiRequest) -> Result<ResponseBody> {
        self.with_timeout(async {
            let response = self.send_with_retries(ask).await?;
            let code = response.status();
            if code.is_success() {
                return Ok(response.into_body());
            }
            Err(self.failure_of(response).await)
        })
        .await
    }

    async fn with_timeout<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
            Ok(done) => done,
            Err(_) => {
                Err(self
                    .transport_error(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())))
            }
        }
    }

    async fn read_body(&self, body: ResponseBody, most: usize) -> Result<Bytes> {
        let body = self.read_body_within(body, most).await?;
        body.ok_or_else(|| reply_too_large(most))
    }

    /// `None` if the body has more bytes.
    async fn read_body_within(&self, mut body: ResponseBody, most: usize) -> Result<Option<Bytes>> {
        let expected = body.size_hint().exact().unwrap_or(0).min(1 << 20);
        let mut buffer = BytesMut::with_capacity(usize::try_from(expected).unwrap_or(0));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| self.transport_error(pool::error_chain(&e)))?;
            if let Some(data) = frame.data_ref() {
                if buffer.len() + data.len() > most {
                    return Ok(None);
                }
                buffer.extend_from_slice(data);
            }
        }
        Ok(Some(buffer.freeze()))
    }

    async fn fetch_object(&self, ask: ApiRequest) -> Result<Object> {
        Ok(Object::from_json(self.fetch_body(&ask).await?)?)
    }

    async fn open_watch(
        &self,
        at: ResourcePath<'_>,
        options: &WatchOptions,
    ) -> Result<WatchStream> {
        let ask = ApiRequest::watch(at, options);
        let body = self.open_body(&ask).await?;
        let timeout_seconds = u64::from(options.timeout_seconds);
        let watch = RemoteWatch {
            body: Box::pin(body),
            decoder: WatchEventDecoder::default(),
            host: self.host.clone(),
            deadline: (timeout_seconds > 0)
                .then(|| Instant::now() + Duration::from_secs(timeout_seconds) + WATCH_GRACE),
            ended: false,
        };
        Ok(Box::pin(stream::unfold(watch, RemoteWatch::next)))
    }
}

fn reply_too_large(most: usize) -> Error {
    Error::Protocol(format!("the reply exceeds {most} bytes"))
}

/// The delay before a retry, if the server asks for one. A request answered with 429 was
/// not processed; one answered with 503 may have been, so only idempotent requests are
/// repeated.
fn retry_delay(method: &Method, response: &Response<ResponseBody>) -> Option<Duration> {
    let retry_after = response.headers().get(RETRY_AFTER);
    let seconds: Option<u64> = retry_after.and_then(|v| v.to_str().ok()?.parse().ok());
    let repeatable = matches!(*method, Method::GET | Method::PUT | Method::DELETE);
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => {}
        StatusCode::SERVICE_UNAVAILABLE if repeatable && seconds.is_some() => {}
        _ => return None,
    }
    // The 429 of an eviction is final: it has no Retry-After.
    Some(Duration::from_secs(seconds?).min(MAX_RETRY_AFTER))
}

#[derive(Deserialize)]
struct ResponseBodyKindField {
    #[serde(default)]
    kind: String,
}

/// The `Status` in the body of an error response, or one made from the status code.
fn status_from_response(code: StatusCode, body: &[u8]) -> Status {
    /// As client-go's.
    const MAX_MESSAGE_CHARS: usize = 2048;
    let is_status = machinery::json::from_slice::<ResponseBodyKindField>(body)
        .is_ok_and(|k| k.kind == "Status");
    if is_status && let Ok(mut status) = machinery::json::from_slice::<Status>(body) {
        if status.code == 0 {
            status.code = code.as_u16();
        }
        return status;
    }
    let reason = match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Gone",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(MAX_MESSAGE_CHARS).collect();
    let message = match text.as_str() {
        "" => code.to_string(),
        text => format!("{code}: {text}"),
    };
    Status::failure(code.as_u16(), reason, message)
}

/// An open watch.
struct RemoteWatch {
    body: Pin<Box<ResponseBody>>,
    decoder: WatchEventDecoder,
    host: String,
    deadline: Option<Instant>,
    ended: bool,
}

impl RemoteWatch {
    async fn next(mut self) -> Option<(Result<WatchEvent>, Self)> {
        if self.ended {
            return None;
        }
        let item = self.read().await.transpose()?;
        self.ended = item.is_err();
        Some((item, self))
    }

    async fn read(&mut self) -> Result<Option<WatchEvent>> {
        loop {
            if let Some(event) = self.decoder.next()? {
                return Ok(Some(event));
            }
            let frame = match self.deadline {
                None => self.body.frame().await,
                Some(deadline) => {
                    match tokio::time::timeout_at(deadline, self.body.frame()).await {
                        Ok(frame) => frame,
                        // A live server would have ended the watch by now: resume.
                        Err(_) => return Ok(None),
                    }
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.decoder.push(data);
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::Transport {
                        host: self.host.clone(),
                        message: pool::error_chain(&error),
                    });
                }
                None if self.decoder.is_at_event_boundary() => return Ok(None),
                None => return Err(Error::Protocol("a watch ended inside an event".into())),
            }
        }
    }
}

#[async_trait]
impl Api for RemoteApi {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply> {
        Ok(match call {
            ApiCall::Get(at) | ApiCall::GetCached(at) => {
                self.fetch_object(ApiRequest::get(at)).await?.into()
            }
            ApiCall::List(at, options) => {
                decode::decode_list(&self.fetch_list(at, options).await?)?.into()
            }
            ApiCall::Watch(at, options) => self.open_watch(at, options).await?.into(),
            ApiCall::Create(at, body, options) => {
                let request = ApiRequest::create(at, body.into_encoded(), options);
                self.fetch_object(request).await?.into()
            }
            ApiCall::CreateEvents(events) => create_each_event(self, events).await.into(),
            ApiCall::Update(at, body, options) => {
                let request = ApiRequest::update(at, body.into_encoded(), options);
                self.fetch_object(request).await?.into()
            }
            ApiCall::Patch(at, patch, options) => {
                let request = ApiRequest::patch(at, patch, options);
                self.fetch_object(request).await?.into()
            }
            ApiCall::Delete(at, options) => {
                let body = self.fetch_body(&ApiRequest::delete(at, options)).await?;
                remaining_object(body)?.into()
            }
            ApiCall::DeleteCollection(at, options, select) => {
                let request = ApiRequest::delete_collection(at, options, select);
                self.fetch_body(&request).await.map(drop)?.into()
            }
            ApiCall::Discover(filter) => self.discover_resources(filter).await?.into(),
            ApiCall::GetRaw(path, most) => {
                let request = ApiRequest::new(Method::GET, path.to_owned());
                let most = most.min(MAX_REPLY_BYTES);
                self.fetch_body_of(&request, most).await?.into()
            }
        })
    }
}

/// The object in the reply to a delete, if it still exists.
fn remaining_object(body: Bytes) -> Result<Option<Object>> {
    let kind: ResponseBodyKindField =
        machinery::json::from_slice(&body).map_err(|e| Error::Protocol(e.to_string()))?;
    if kind.kind == "Status" {
        return Ok(None);
    }
    let object = Object::from_json(body)?;
    Ok(object.meta().deleting.then_some(object))
}
