//! The connections to one server.
//!
//! A response body holds its permit on a connection. HTTP/2: streams are counted, and the
//! next connection is opened before the peer's stream limit is reached, because a stream
//! above the limit waits until another one ends, and a watch does not end. HTTP/1.1: a
//! few idle connections are kept.
//!
//! A server that cannot be reached is dialed again after a growing backoff; until then
//! callers get the last error at once.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::body::Body;
use super::config::Config;
use super::credentials::Credentials;
use super::dial::{Connection, dial, dial_upgradable};
use crate::tasks::Tasks;

/// Idle HTTP/1.1 connections kept for later requests.
const IDLE: usize = 8;
/// The backoff between dials of a server that is down, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a request is sent again that was certainly not processed.
const RESENDS: usize = 3;

/// A request without a response.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) fate: Fate,
}

/// Whether the server processed a request that got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The request was never sent.
    Unsent,
    /// The server reported that it did not process the request: it was in flight while
    /// the server sent GOAWAY (RFC 9113, 8.7).
    Refused,
    Unknown,
}

impl Failure {
    fn unsent(message: String) -> Self {
        Self {
            message,
            fate: Fate::Unsent,
        }
    }

    /// The server has certainly not processed the request.
    pub(super) fn not_begun(&self) -> bool {
        self.fate != Fate::Unknown
    }
}

struct Http2 {
    sender: http2::SendRequest<Body>,
    limit: watch::Receiver<usize>,
    /// Our own limit of streams.
    own_limit: usize,
    open: Arc<AtomicUsize>,
}

impl Http2 {
    /// The next connection is opened at about 90 % of the peer's limit.
    fn most(&self) -> usize {
        let limit = *self.limit.borrow();
        (limit - limit / 10).min(self.own_limit).max(1)
    }

    fn has_room(&self) -> bool {
        self.open.load(Ordering::Relaxed) < self.most()
    }
}

#[derive(Default)]
struct State {
    http2: Vec<Http2>,
    idle: Vec<http1::SendRequest<Body>>,
    failed: Option<Down>,
}

/// The last dial failed.
struct Down {
    message: String,
    until: Instant,
    pause: Duration,
}

struct Shared {
    config: Config,
    credentials: Credentials,
    tasks: Tasks,
    state: Mutex<State>,
    /// Held while dialing, so that a burst opens one connection.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection pool. Clones are the same pool.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

enum Lent {
    Http2(http2::SendRequest<Body>, Place),
    Http1(http1::SendRequest<Body>),
}

impl Pool {
    pub(super) fn new(config: Config, tasks: Tasks) -> Self {
        Self(Arc::new(Shared {
            credentials: Credentials::new(&config),
            config,
            tasks,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }))
    }

    pub(super) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.0.credentials
    }

    /// Sends a request as soon as a connection has capacity.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Reply>, Failure> {
        let mut tries = 0;
        loop {
            let lent = self.lend().await.map_err(Failure::unsent)?;
            let (failure, back) = match lent {
                Lent::Http2(mut sender, place) => match sender.try_send_request(request).await {
                    Ok(response) => {
                        return Ok(response.map(|body| Reply {
                            body,
                            ended: false,
                            _place: Some(place),
                            http1: None,
                        }));
                    }
                    Err(failed) => explain(failed),
                },
                Lent::Http1(mut sender) => match send_http1(&mut sender, request).await {
                    Ok(response) => {
                        return Ok(response.map(|body| Reply {
                            body,
                            ended: false,
                            _place: None,
                            http1: Some((self.clone(), sender)),
                        }));
                    }
                    Err(failed) => failed,
                },
            };
            tries += 1;
            match back {
                Some(back) if tries <= RESENDS => request = back,
                _ => return Err(failure),
            }
        }
    }

    /// Sends an upgrade request on a connection of its own. The response says whether the
    /// server agreed; its body or its upgrade holds the connection.
    pub(super) async fn send_alone(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Failure> {
        let shared = &*self.0;
        let identity = shared
            .credentials
            .identity()
            .await
            .map_err(Failure::unsent)?;
        let dialled = Box::pin(dial_upgradable(
            &shared.config,
            identity.as_ref(),
            &shared.tasks,
        ));
        let mut sender = dialled.await.map_err(Failure::unsent)?;
        send_http1(&mut sender, request)
            .await
            .map_err(|(failure, _)| failure)
    }

    /// New requests get new connections, for example with new credentials.
    pub(super) fn retire(&self) {
        let mut state = self.0.state.lock();
        state.http2.clear();
        state.idle.clear();
    }

    /// The number of open connections.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        let mut state = self.0.state.lock();
        state.http2.retain(|c| !c.sender.is_closed());
        state.http2.len() + state.idle.len()
    }

    async fn lend(&self) -> Result<Lent, String> {
        if let Some(lent) = self.ready() {
            return Ok(lent);
        }
        let single = {
            let _one = self.0.connecting.lock().await;
            if let Some(lent) = self.ready() {
                return Ok(lent);
            }
            self.check_down()?;
            self.open().await?
        };
        match single {
            Some(sender) => Ok(Lent::Http1(sender)),
            None => self
                .ready()
                .ok_or_else(|| "the connection closed at once".to_owned()),
        }
    }

    fn check_down(&self) -> Result<(), String> {
        let state = self.0.state.lock();
        match &state.failed {
            Some(down) if Instant::now() < down.until => Err(down.message.clone()),
            _ => Ok(()),
        }
    }

    /// Dials: an HTTP/2 connection goes to the pool, an HTTP/1.1 connection to the
    /// caller.
    async fn open(&self) -> Result<Option<http1::SendRequest<Body>>, String> {
        let shared = &*self.0;
        let dialled = async {
            let identity = shared.credentials.identity().await?;
            // Boxed: it is rare and large, and would enlarge every request's future.
            Box::pin(dial(&shared.config, identity.as_ref(), &shared.tasks)).await
        };
        let dialled = dialled.await;
        let mut state = shared.state.lock();
        match dialled {
            Ok(connection) => {
                state.failed = None;
                Ok(match connection {
                    Connection::Http1(sender) => Some(sender),
                    Connection::Http2 { sender, limit } => {
                        state.http2.push(Http2 {
                            sender,
                            limit,
                            own_limit: shared.config.flow.streams,
                            open: Arc::default(),
                        });
                        None
                    }
                })
            }
            Err(message) => {
                let before = state.failed.as_ref().map(|d| d.pause * 2);
                let pause = before.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
                state.failed = Some(Down {
                    message: message.clone(),
                    until: Instant::now() + pause,
                    pause,
                });
                Err(message)
            }
        }
    }

    /// A permit on an open connection. The oldest connection with capacity is filled
    /// first, so that later ones run empty when load falls; surplus empty ones are
    /// closed.
    fn ready(&self) -> Option<Lent> {
        let mut state = self.0.state.lock();
        state.http2.retain(|c| !c.sender.is_closed());
        if let Some(at) = state.http2.iter().position(Http2::has_room) {
            let connection = &state.http2[at];
            connection.open.fetch_add(1, Ordering::Relaxed);
            let place = Place(Arc::clone(&connection.open));
            let sender = connection.sender.clone();
            let half_empty = connection.open.load(Ordering::Relaxed) * 2 < connection.most();
            if half_empty {
                let mut nth = 0;
                state.http2.retain(|c| {
                    nth += 1;
                    nth <= at + 1 || c.open.load(Ordering::Relaxed) > 0
                });
            }
            return Some(Lent::Http2(sender, place));
        }
        while let Some(sender) = state.idle.pop() {
            if !sender.is_closed() {
                return Some(Lent::Http1(sender));
            }
        }
        None
    }
}

async fn send_http1(
    sender: &mut http1::SendRequest<Body>,
    request: Request<Body>,
) -> Result<Response<Incoming>, (Failure, Option<Request<Body>>)> {
    // The server may just have closed a pooled connection.
    if let Err(e) = sender.ready().await {
        return Err((Failure::unsent(chain(&e)), Some(request)));
    }
    sender.try_send_request(request).await.map_err(explain)
}

/// A message that hyper returns was never sent.
fn explain(mut failed: TrySendError<Request<Body>>) -> (Failure, Option<Request<Body>>) {
    let back = failed.take_message();
    let error = failed.into_error();
    let fate = match back {
        Some(_) => Fate::Unsent,
        None if refused(&error) => Fate::Refused,
        None => Fate::Unknown,
    };
    let message = chain(&error);
    (Failure { message, fate }, back)
}

/// A stream that fails with the server's GOAWAY comes after the last stream that the
/// server processes; the earlier ones continue.
fn refused(error: &hyper::Error) -> bool {
    let http2 = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
    http2.is_some_and(|e| {
        e.is_remote() && (e.is_go_away() || e.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// An error and its sources on one line.
pub(super) fn chain(error: &hyper::Error) -> String {
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
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response body. It holds its stream permit while it lives; read to the end, its
/// HTTP/1.1 connection returns to the pool.
pub struct Reply {
    body: Incoming,
    ended: bool,
    _place: Option<Place>,
    http1: Option<(Pool, http1::SendRequest<Body>)>,
}

impl http_body::Body for Reply {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended = frame.is_none();
        Poll::Ready(frame)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let whole = self.ended || self.body.is_end_stream();
        if let Some((pool, sender)) = self.http1.take()
            && whole
        {
            let mut state = pool.0.state.lock();
            state.idle.retain(|s| !s.is_closed());
            if state.idle.len() < IDLE {
                state.idle.push(sender);
            }
        }
    }
}
