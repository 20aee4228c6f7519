//! The connections to one server.
//!
//! A response body holds its permit on a connection. HTTP/2: streams are counted, and the
//! next connection is opened before the peer's stream limit is reached, because a stream
//! above the limit waits until another one ends, and a watch does not end. Until the peer has
//! told its limit, a new connection carries a few requests and the others wait for it.
//! HTTP/1.1: a few idle connections are kept.
//!
//! A server that cannot be reached, or that closes a connection without a word, is dialed
//! again after a growing backoff; until then callers get the last error at once.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use machinery::ExponentialBackoff;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::body::RequestBody;
use super::config::RestConfig;
use super::credentials::ClientCredentials;
use super::dial::{
    ClientConnection, STREAMS_BEFORE_SETTINGS, dial, dial_upgradable, settings_received,
};
use crate::tasks::TaskGroup;

/// Idle HTTP/1.1 connections kept for later requests.
const MAX_IDLE_CONNECTIONS: usize = 8;
/// The backoff between dials of a server that is down, at first and at most.
const DIAL_BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// How long a new connection's SETTINGS are waited for before another one is opened.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a request is sent again that was certainly not processed.
const MAX_RESENDS: usize = 3;

/// A request without a response.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(super) message: String,
    pub(super) delivery: DeliveryStatus,
}

/// Whether the server processed a request that got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryStatus {
    /// The request was never sent.
    Unsent,
    /// The server reported that it did not process the request: it was in flight while
    /// the server sent GOAWAY (RFC 9113, 8.7).
    Refused,
    Unknown,
}

impl SendError {
    fn unsent(message: String) -> Self {
        Self {
            message,
            delivery: DeliveryStatus::Unsent,
        }
    }

    /// The server has certainly not processed the request.
    pub(super) fn is_unprocessed(&self) -> bool {
        self.delivery != DeliveryStatus::Unknown
    }
}

struct Http2Connection {
    sender: http2::SendRequest<RequestBody>,
    /// The peer's limit of streams; 0 until its SETTINGS have come.
    limit: watch::Receiver<usize>,
    /// Our own limit of streams.
    configured_limit: usize,
    open_streams: Arc<AtomicUsize>,
}

impl Http2Connection {
    /// The next connection is opened at about 90 % of the peer's limit.
    fn max_streams(&self) -> usize {
        let limit = match *self.limit.borrow() {
            0 => STREAMS_BEFORE_SETTINGS,
            peer_limit => peer_limit - peer_limit / 10,
        };
        limit.min(self.configured_limit).max(1)
    }

    /// Whether the peer's SETTINGS have come.
    fn is_confirmed(&self) -> bool {
        *self.limit.borrow() > 0
    }

    fn has_capacity(&self) -> bool {
        self.open_streams.load(Ordering::Relaxed) < self.max_streams()
    }
}

#[derive(Default)]
struct PooledConnections {
    http2: Vec<Http2Connection>,
    idle: Vec<http1::SendRequest<RequestBody>>,
    dial_failure: Option<DialFailureBackoff>,
}

impl PooledConnections {
    /// Forgets what has closed. A connection that the server closed without a word is a
    /// dial that failed; one on which it spoke ends the backoff.
    fn remove_closed_http2(&mut self) {
        let mut closed_at_once = false;
        let dial_failure = &mut self.dial_failure;
        self.http2.retain(|connection| {
            let (is_open, is_confirmed) =
                (!connection.sender.is_closed(), connection.is_confirmed());
            if is_confirmed {
                *dial_failure = None;
            }
            closed_at_once |= !is_open && !is_confirmed;
            is_open
        });
        if closed_at_once {
            self.record_dial_failure("connection closed before the server's settings came");
        }
    }

    fn record_dial_failure(&mut self, message: &str) {
        let before = self.dial_failure.take();
        let mut backoff = before.map_or(DIAL_BACKOFF, |failure| failure.backoff);
        self.dial_failure = Some(DialFailureBackoff {
            message: message.to_owned(),
            until: Instant::now() + backoff.next_delay(),
            backoff,
        });
    }
}

/// The last dial failed.
struct DialFailureBackoff {
    message: String,
    until: Instant,
    backoff: ExponentialBackoff,
}

struct ConnectionPoolInner {
    config: RestConfig,
    credentials: ClientCredentials,
    tasks: TaskGroup,
    connections: Mutex<PooledConnections>,
    /// Held while dialing, so that a burst opens one connection.
    dial_lock: tokio::sync::Mutex<()>,
}

/// A connection pool. Clones are the same pool.
#[derive(Clone)]
pub(super) struct ConnectionPool(Arc<ConnectionPoolInner>);

enum AcquiredConnection {
    Http2(http2::SendRequest<RequestBody>, StreamPermit),
    Http1(http1::SendRequest<RequestBody>),
}

impl ConnectionPool {
    pub(super) fn new(config: RestConfig, tasks: TaskGroup) -> Self {
        Self(Arc::new(ConnectionPoolInner {
            credentials: ClientCredentials::new(&config),
            config,
            tasks,
            connections: Mutex::default(),
            dial_lock: tokio::sync::Mutex::default(),
        }))
    }

    pub(super) fn config(&self) -> &RestConfig {
        &self.0.config
    }

    pub(super) fn credentials(&self) -> &ClientCredentials {
        &self.0.credentials
    }

    /// Sends a request as soon as a connection has capacity.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let mut tries = 0;
        loop {
            let acquired = self.acquire().await.map_err(SendError::unsent)?;
            let (failure, back) = match acquired {
                AcquiredConnection::Http2(mut sender, permit) => {
                    match sender.try_send_request(request).await {
                        Ok(response) => {
                            return Ok(response.map(|body| ResponseBody {
                                body,
                                ended: false,
                                _permit: Some(permit),
                                http1: None,
                            }));
                        }
                        Err(failed) => classify_send_error(failed),
                    }
                }
                AcquiredConnection::Http1(mut sender) => {
                    match send_http1(&mut sender, request).await {
                        Ok(response) => {
                            return Ok(response.map(|body| ResponseBody {
                                body,
                                ended: false,
                                _permit: None,
                                http1: Some((self.clone(), sender)),
                            }));
                        }
                        Err(failed) => failed,
                    }
                }
            };
            tries += 1;
            match back {
                Some(back) if tries <= MAX_RESENDS => request = back,
                _ => return Err(failure),
            }
        }
    }

    /// Sends an upgrade request on a connection of its own. The response says whether the
    /// server agreed; its body or its upgrade holds the connection.
    pub(super) async fn send_on_own_connection(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let shared = &*self.0;
        let identity = shared
            .credentials
            .client_certificate()
            .await
            .map_err(SendError::unsent)?;
        let dialled = Box::pin(dial_upgradable(
            &shared.config,
            identity.as_ref(),
            &shared.tasks,
        ));
        let mut sender = dialled.await.map_err(SendError::unsent)?;
        send_http1(&mut sender, request)
            .await
            .map_err(|(failure, _)| failure)
    }

    /// New requests get new connections, for example with new credentials.
    pub(super) fn drop_connections(&self) {
        let mut state = self.0.connections.lock();
        state.http2.clear();
        state.idle.clear();
    }

    /// The number of open connections.
    #[cfg(test)]
    pub(super) fn open_connections(&self) -> usize {
        let mut state = self.0.connections.lock();
        state.http2.retain(|c| !c.sender.is_closed());
        state.http2.len() + state.idle.len()
    }

    async fn acquire(&self) -> Result<AcquiredConnection, String> {
        if let Some(acquired) = self.try_acquire() {
            return Ok(acquired);
        }
        let single = {
            let _one = self.0.dial_lock.lock().await;
            self.wait_for_settings().await;
            if let Some(acquired) = self.try_acquire() {
                return Ok(acquired);
            }
            self.check_dial_backoff()?;
            self.dial_connection().await?
        };
        match single {
            Some(sender) => Ok(AcquiredConnection::Http1(sender)),
            None => self
                .try_acquire()
                .ok_or_else(|| "the connection closed at once".to_owned()),
        }
    }

    /// If a new connection is at what it may carry before its SETTINGS, waits for them: with
    /// its limit known it has room for more.
    async fn wait_for_settings(&self) {
        let limit = {
            let state = self.0.connections.lock();
            if state.http2.iter().any(Http2Connection::has_capacity) {
                return;
            }
            let mut open = state.http2.iter().filter(|c| !c.sender.is_closed());
            open.find(|c| !c.is_confirmed()).map(|c| c.limit.clone())
        };
        if let Some(mut limit) = limit {
            let received = settings_received(&mut limit);
            let _ = tokio::time::timeout(SETTINGS_TIMEOUT, received).await;
        }
    }

    fn check_dial_backoff(&self) -> Result<(), String> {
        let state = self.0.connections.lock();
        match &state.dial_failure {
            Some(down) if Instant::now() < down.until => Err(down.message.clone()),
            _ => Ok(()),
        }
    }

    /// Dials: an HTTP/2 connection goes to the pool, an HTTP/1.1 connection to the
    /// caller.
    async fn dial_connection(&self) -> Result<Option<http1::SendRequest<RequestBody>>, String> {
        let shared = &*self.0;
        let dialled = async {
            let identity = shared.credentials.client_certificate().await?;
            // Boxed: it is rare and large, and would enlarge every request's future.
            Box::pin(dial(&shared.config, identity.as_ref(), &shared.tasks)).await
        };
        let dialled = dialled.await;
        let mut state = shared.connections.lock();
        match dialled {
            Ok(ClientConnection::Http1(sender)) => {
                state.dial_failure = None;
                Ok(Some(sender))
            }
            Ok(ClientConnection::Http2 { sender, limit }) => {
                state.http2.push(Http2Connection {
                    sender,
                    limit,
                    configured_limit: shared.config.flow_control.max_streams,
                    open_streams: Arc::default(),
                });
                Ok(None)
            }
            Err(message) => {
                state.record_dial_failure(&message);
                Err(message)
            }
        }
    }

    /// A permit on an open connection. The oldest connection with capacity is filled
    /// first, so that later ones run empty when load falls; surplus empty ones are
    /// closed.
    fn try_acquire(&self) -> Option<AcquiredConnection> {
        let mut state = self.0.connections.lock();
        state.remove_closed_http2();
        if let Some(at) = state.http2.iter().position(Http2Connection::has_capacity) {
            let connection = &state.http2[at];
            connection.open_streams.fetch_add(1, Ordering::Relaxed);
            let permit = StreamPermit(Arc::clone(&connection.open_streams));
            let sender = connection.sender.clone();
            let half_empty =
                connection.open_streams.load(Ordering::Relaxed) * 2 < connection.max_streams();
            if half_empty {
                let mut nth = 0;
                state.http2.retain(|c| {
                    nth += 1;
                    nth <= at + 1 || c.open_streams.load(Ordering::Relaxed) > 0
                });
            }
            return Some(AcquiredConnection::Http2(sender, permit));
        }
        while let Some(sender) = state.idle.pop() {
            if !sender.is_closed() {
                return Some(AcquiredConnection::Http1(sender));
            }
        }
        None
    }
}

async fn send_http1(
    sender: &mut http1::SendRequest<RequestBody>,
    mut request: Request<RequestBody>,
) -> Result<Response<Incoming>, (SendError, Option<Request<RequestBody>>)> {
    // The server may just have closed a pooled connection.
    if let Err(e) = sender.ready().await {
        return Err((SendError::unsent(error_chain(&e)), Some(request)));
    }
    let url = into_origin_form(&mut request);
    let sent = sender.try_send_request(request).await;
    sent.map_err(|failed| {
        let (error, back) = classify_send_error(failed);
        // It may be sent again on HTTP/2, which takes the authority from the URL.
        let back = back.map(|mut back| {
            if let Some(url) = url {
                back.headers_mut().remove(HOST);
                *back.uri_mut() = url;
            }
            back
        });
        (error, back)
    })
}

/// Moves the authority of the URL to the header Host, as servers of HTTP/1.1 require it, and
/// returns the URL. `None`: the request had a Host or no authority.
fn into_origin_form(request: &mut Request<RequestBody>) -> Option<Uri> {
    if request.headers().contains_key(HOST) {
        return None;
    }
    let authority = request.uri().authority()?;
    let host = match (request.uri().scheme_str(), authority.port_u16()) {
        (Some("https"), Some(443)) | (Some("http"), Some(80)) => authority.host(),
        _ => authority.as_str(),
    };
    let host = HeaderValue::from_str(host).ok()?;
    let path = request.uri().path_and_query().cloned();
    request.headers_mut().insert(HOST, host);
    let origin = path.map_or_else(Uri::default, Uri::from);
    Some(std::mem::replace(request.uri_mut(), origin))
}

/// A message that hyper returns was never sent.
pub(super) fn classify_send_error(
    mut failed: TrySendError<Request<RequestBody>>,
) -> (SendError, Option<Request<RequestBody>>) {
    let back = failed.take_message();
    let error = failed.into_error();
    let fate = match back {
        Some(_) => DeliveryStatus::Unsent,
        None if is_refused_by_server(&error) => DeliveryStatus::Refused,
        None => DeliveryStatus::Unknown,
    };
    let message = error_chain(&error);
    (
        SendError {
            message,
            delivery: fate,
        },
        back,
    )
}

/// A stream that fails with the server's GOAWAY comes after the last stream that the
/// server processes; the earlier ones continue.
fn is_refused_by_server(error: &hyper::Error) -> bool {
    let http2 = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
    http2.is_some_and(|e| {
        e.is_remote() && (e.is_go_away() || e.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// An error and its sources on one line.
pub(super) fn error_chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = inner.source();
    }
    text
}

/// A stream's permit on an HTTP/2 connection.
struct StreamPermit(Arc<AtomicUsize>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body. It holds its stream permit while it lives; read to the end, its
/// HTTP/1.1 connection returns to the pool.
pub struct ResponseBody {
    body: Incoming,
    ended: bool,
    _permit: Option<StreamPermit>,
    http1: Option<(ConnectionPool, http1::SendRequest<RequestBody>)>,
}

impl ResponseBody {
    /// The body of a response on a connection outside a pool.
    pub(super) fn without_permit(body: Incoming) -> Self {
        Self {
            body,
            ended: false,
            _permit: None,
            http1: None,
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.ended = frame.is_none();
            // An empty frame, with which servers end a stream, is nothing to pass on: a peer
            // that receives many counts them as an attack.
            let data = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref());
            if !data.is_some_and(Bytes::is_empty) {
                return Poll::Ready(frame);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let complete = self.ended || self.body.is_end_stream();
        if let Some((pool, sender)) = self.http1.take()
            && complete
        {
            let mut state = pool.0.connections.lock();
            state.idle.retain(|s| !s.is_closed());
            if state.idle.len() < MAX_IDLE_CONNECTIONS {
                state.idle.push(sender);
            }
        }
    }
}
