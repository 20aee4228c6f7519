//! Opens connections: TCP, an HTTP proxy, TLS, and the choice between HTTP/2 and
//! HTTP/1.1.
//!
//! The result is a connection after its handshake; the task that drives it belongs to a
//! [`TaskGroup`]. Every step has a timeout. An upgrade needs HTTP/1.1 and a connection of
//! its own: [`dial_upgradable`].

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::task::AtomicWaker;
use http::Uri;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::body::RequestBody;
use super::config::{ClientCertificate, Http2FlowControl, RestConfig};
use super::fence::FencedStream;
use super::tls;
use crate::tasks::TaskGroup;

/// The limit of the TCP, proxy, TLS and HTTP handshakes together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that does not answer an HTTP/2 ping is considered gone after 15 + 15 seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The largest reply of a proxy, headers included.
const MAX_PROXY_REPLY_BYTES: usize = 8 << 10;

/// A connection ready for requests.
pub(super) enum ClientConnection {
    Http2 {
        sender: http2::SendRequest<RequestBody>,
        /// The peer's limit of concurrent streams.
        limit: watch::Receiver<usize>,
    },
    Http1(http1::SendRequest<RequestBody>),
}

trait AsyncByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
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
    tcp: FencedStream<TcpStream>,
    protocols: &[&[u8]],
) -> Result<TlsStream<FencedStream<TcpStream>>, String> {
    let tls = tls::client_config(config, identity, protocols)?;
    let connector = TlsConnector::from(Arc::new(tls));
    let host = config
        .tls_server_name
        .as_deref()
        .unwrap_or(bare_host(&config.server));
    let stream = connector.connect(tls::server_name(host)?, tcp).await;
    stream.map_err(|e| format!("TLS: {e}"))
}

/// The host without the brackets of an IPv6 address.
fn bare_host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(match uri.scheme_str() {
        Some("http") => 80,
        _ => 443,
    })
}

async fn connect_tcp(uri: &Uri) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((bare_host(uri), port(uri))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn connect_fenced(config: &RestConfig) -> Result<FencedStream<TcpStream>, String> {
    Ok(FencedStream {
        stream: connect_transport(config).await?,
        fence: config.send_fence.clone(),
    })
}

async fn connect_transport(config: &RestConfig) -> Result<TcpStream, String> {
    let Some(proxy) = &config.proxy else {
        return connect_tcp(&config.server).await.map_err(|e| e.to_string());
    };
    let mut stream = connect_tcp(proxy)
        .await
        .map_err(|e| format!("proxy: {e}"))?;
    let server = &config.server;
    let to = format!("{}:{}", server.host().unwrap_or_default(), port(server));
    let mut hello = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    let authority = proxy.authority().map(http::uri::Authority::as_str);
    if let Some((user, _)) = authority.and_then(|a| a.rsplit_once('@')) {
        let basic = STANDARD.encode(user);
        hello.push_str(&format!("Proxy-Authorization: Basic {basic}\r\n"));
    }
    for (name, value) in &config.proxy_headers {
        if name.contains(['\r', '\n', ':']) || value.contains(['\r', '\n']) {
            return Err(format!("proxy header {name:?} cannot be sent"));
        }
        hello.push_str(&format!("{name}: {value}\r\n"));
    }
    hello.push_str("\r\n");
    let reply = async {
        stream.write_all(hello.as_bytes()).await?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n\r\n") && reply.len() < MAX_PROXY_REPLY_BYTES {
            // Read byte by byte: what follows the header belongs to the tunnel.
            reply.push(stream.read_u8().await?);
        }
        io::Result::Ok(reply)
    };
    let reply = reply.await.map_err(|e| format!("proxy: {e}"))?;
    let line = reply.split(|b| *b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    if line.split(' ').nth(1) != Some("200") {
        return Err(format!("proxy refused: {line:.200}"));
    }
    Ok(stream)
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
struct HyperExecutor {
    tasks: TaskGroup,
    activity: Arc<AtomicWaker>,
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

async fn handshake_http2(
    stream: impl AsyncByteStream + 'static,
    flow: Http2FlowControl,
    tasks: &TaskGroup,
) -> Result<ClientConnection, String> {
    let spawner = HyperExecutor {
        tasks: tasks.clone(),
        activity: Arc::default(),
    };
    let activity = Arc::clone(&spawner.activity);
    let (sender, mut connection) = http2::Builder::new(spawner)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(flow.stream_window_bytes)
        .initial_connection_window_size(flow.connection_window_bytes)
        // 0 until the peer's SETTINGS arrive: only then is its limit known.
        .initial_max_send_streams(0)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let (limit_sender, mut limit) = watch::channel(0);
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        let driven = poll_fn(|cx| {
            if *limit_sender.borrow() == 0 {
                activity.register(cx.waker());
            }
            let polled = Pin::new(&mut connection).poll(cx);
            limit_sender.send_if_modified(|limit| {
                let now = connection.current_max_send_streams();
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
    let settings = limit.wait_for(|limit| *limit > 0).await.map(|_| ());
    settings.map_err(|_| "connection closed before the server's settings came".to_owned())?;
    Ok(ClientConnection::Http2 { sender, limit })
}
