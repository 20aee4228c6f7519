//! Opens connections: TLS over a transport, and the choice between HTTP/2 and HTTP/1.1.
//!
//! The result is a connection after its handshake; the task that drives it belongs to a
//! [`TaskGroup`]. Every step has a timeout. An upgrade needs HTTP/1.1 and a connection of
//! its own: [`dial_upgradable`].

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::body::RequestBody;
use super::config::{ClientCertificate, Http2FlowControl, RestConfig};
use super::fence::FencedStream;
use super::tls;
use super::transport::{TransportStream, bare_host, connect_transport};
use crate::tasks::TaskGroup;

/// The limit of the TCP, proxy, TLS and HTTP handshakes together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The streams that may be opened before the peer's SETTINGS have come: to wait for them would
/// cost each new connection a round trip. Servers allow more: RFC 9113, 6.5.2 recommends at
/// least 100. It is an unusual number, because the SETTINGS of a peer with the same limit
/// would not be noticed.
pub(super) const STREAMS_BEFORE_SETTINGS: usize = 9;
/// A peer that does not answer an HTTP/2 ping is considered gone after 15 + 15 seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A connection ready for requests.
pub(super) enum ClientConnection {
    Http2 {
        sender: http2::SendRequest<RequestBody>,
        /// The peer's limit of concurrent streams; 0 until its SETTINGS have come.
        limit: watch::Receiver<usize>,
    },
    Http1(http1::SendRequest<RequestBody>),
}

pub(super) trait AsyncByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncByteStream for T {}

/// Connects and completes the handshakes. The error is a message for users: what failed,
/// and where.
pub(super) async fn dial(
    config: &RestConfig,
    identity: Option<&ClientCertificate>,
    tasks: &TaskGroup,
) -> Result<ClientConnection, String> {
    let work = async {
        let tcp = connect_fenced(config).await?;
        if config.server.scheme_str() == Some("http") {
            return Ok(ClientConnection::Http1(handshake_http1(tcp, tasks).await?));
        }
        let stream = connect_tls(config, identity, tcp, tls::ALPN_HTTP2_OR_HTTP1).await?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => handshake_http2(stream, config.flow_control, tasks).await,
            _ => Ok(ClientConnection::Http1(
                handshake_http1(stream, tasks).await?,
            )),
        }
    };
    with_dial_timeout(work).await
}

/// An HTTP/1.1 connection for one request, which may be upgraded.
pub(super) async fn dial_upgradable(
    config: &RestConfig,
    identity: Option<&ClientCertificate>,
    tasks: &TaskGroup,
) -> Result<http1::SendRequest<RequestBody>, String> {
    let work = async {
        let tcp = connect_fenced(config).await?;
        if config.server.scheme_str() == Some("http") {
            return handshake_http1(tcp, tasks).await;
        }
        let stream = connect_tls(config, identity, tcp, tls::ALPN_HTTP1).await?;
        handshake_http1(stream, tasks).await
    };
    with_dial_timeout(work).await
}

async fn with_dial_timeout<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(DIAL_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(format!("no connection within {} s", DIAL_TIMEOUT.as_secs())),
    }
}

async fn connect_tls(
    config: &RestConfig,
    identity: Option<&ClientCertificate>,
    tcp: FencedStream<TransportStream>,
    protocols: &[&[u8]],
) -> Result<TlsStream<FencedStream<TransportStream>>, String> {
    let tls = tls::client_config(config, identity, protocols)?;
    let connector = TlsConnector::from(Arc::new(tls));
    let host = config
        .tls_server_name
        .as_deref()
        .unwrap_or(bare_host(&config.server));
    let stream = connector.connect(tls::server_name(host)?, tcp).await;
    stream.map_err(|e| format!("TLS: {e}"))
}

async fn connect_fenced(config: &RestConfig) -> Result<FencedStream<TransportStream>, String> {
    Ok(FencedStream {
        stream: connect_transport(config).await?,
        fence: config.send_fence.clone(),
    })
}

async fn handshake_http1(
    stream: impl AsyncByteStream + 'static,
    tasks: &TaskGroup,
) -> Result<http1::SendRequest<RequestBody>, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        if let Some(Err(error)) = shutdown
            .run_until_triggered(connection.with_upgrades())
            .await
        {
            tracing::debug!(%error, "connection ended");
        }
    });
    Ok(sender)
}

/// Runs hyper's tasks, and wakes the task that waits for the peer's SETTINGS.
#[derive(Clone)]
pub(super) struct HyperExecutor {
    tasks: TaskGroup,
    activity: Arc<AtomicWaker>,
}

impl HyperExecutor {
    pub(super) fn new(tasks: &TaskGroup) -> Self {
        Self {
            tasks: tasks.clone(),
            activity: Arc::default(),
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for HyperExecutor {
    fn execute(&self, work: F) {
        let (shutdown, activity) = (self.tasks.shutdown().clone(), Arc::clone(&self.activity));
        self.tasks.spawn(async move {
            let mut work = pin!(work);
            let watched = poll_fn(|cx| {
                let polled = work.as_mut().poll(cx);
                activity.wake();
                polled
            });
            shutdown.run_until_triggered(watched).await;
        });
    }
}

pub(super) async fn handshake_http2(
    stream: impl AsyncByteStream + 'static,
    flow: Http2FlowControl,
    tasks: &TaskGroup,
) -> Result<ClientConnection, String> {
    let spawner = HyperExecutor::new(tasks);
    let activity = Arc::clone(&spawner.activity);
    let (sender, mut connection) = http2::Builder::new(spawner)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(flow.stream_window_bytes)
        .initial_connection_window_size(flow.connection_window_bytes)
        .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let (limit_sender, limit) = watch::channel(0);
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        let driven = poll_fn(|cx| {
            if *limit_sender.borrow() == 0 {
                activity.register(cx.waker());
            }
            let polled = Pin::new(&mut connection).poll(cx);
            limit_sender.send_if_modified(|limit| {
                let now = match connection.current_max_send_streams() {
                    STREAMS_BEFORE_SETTINGS => *limit,
                    peer_limit => peer_limit,
                };
                std::mem::replace(limit, now) != now
            });
            match polled {
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "connection ended");
                    Poll::Ready(())
                }
                other => other.map(|_| ()),
            }
        });
        shutdown.run_until_triggered(driven).await;
    });
    Ok(ClientConnection::Http2 { sender, limit })
}

/// Waits until the peer's limit of streams is known. `false`: the connection has ended.
pub(super) async fn settings_received(limit: &mut watch::Receiver<usize>) -> bool {
    limit.wait_for(|limit| *limit > 0).await.is_ok()
}
