//! Accepts TLS connections and serves HTTP/1.1 and HTTP/2 on them until shutdown. Each
//! connection is a task that this module owns and joins.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use auth::Peer;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use machinery::FailureLog;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::layers;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Timeout for reading a request's headers. hyper starts it before the first byte, so
/// it is also the idle timeout (kube-apiserver's `IdleTimeout`).
const HEADERS: Duration = Duration::from_secs(90);
/// Bound on open streams per connection.
const STREAMS: u32 = 250;
/// Bytes buffered for a stream whose client reads slowly.
const SEND_BUFFER: usize = 64 * 1024;
const HEADER_LIST: u32 = 64 * 1024;
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);
/// Bound on connections; more wait in the kernel's backlog.
const CONNECTIONS: usize = 20_000;

/// Serves until `shutdown` resolves, then lets short requests finish, ends watches
/// cleanly and returns. Connections still open after `grace` are aborted.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    grace: Duration,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    let stop = CancellationToken::new();
    let mut shutdown = pin!(shutdown);
    let failures = FailureLog::new();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    if failures.record_success("accept") {
                        tracing::info!("accepting connections again");
                    }
                    let connection = connection(
                        Arc::clone(&app), acceptor.clone(), stream, stop.clone());
                    connections.spawn(connection);
                }
                Err(e) => {
                    // Usually out of file descriptors; some will be freed.
                    if failures.record_failure("accept", &e.to_string()) {
                        tracing::warn!(error = %e, "cannot accept a connection");
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    app.draining.cancel();
    app.ending.begin(grace / 2);
    stop.cancel();
    let drained = async { while connections.join_next().await.is_some() {} };
    let grace_period = async {
        sleep(grace).await;
        app.short_over().await;
    };
    let cut = tokio::select! {
        () = drained => false,
        () = grace_period => true,
    };
    if cut {
        tracing::warn!("aborting connections that are still open");
        connections.shutdown().await;
    }
    Ok(())
}

async fn connection(
    app: Arc<App>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let accepted = tokio::select! {
        () = stop.cancelled() => return,
        accepted = timeout(HANDSHAKE, acceptor.accept(stream)) => accepted,
    };
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => {
            app.metrics.handshake_errors.inc();
            tracing::debug!(error = %e, "TLS handshake failed");
            return;
        }
        Err(_) => {
            app.metrics.handshake_errors.inc();
            return;
        }
    };
    let session = stream.get_ref().1;
    let peer = Arc::new(Peer::new(session.peer_certificates()));
    if let Some(cert) = peer.chain().first()
        && let Ok(expires) = auth::x509::expiry(cert)
    {
        let left = expires - app.now().as_second();
        app.metrics.certificate(left as f64);
    }
    let h2 = session.alpn_protocol() == Some(b"h2");
    let ended = if h2 {
        http2_connection(app, peer, stream, stop).await
    } else {
        http1_connection(app, peer, stream, stop).await
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "connection failed");
    }
}

async fn http1_connection(
    app: Arc<App>,
    peer: Arc<Peer>,
    stream: TlsStream<TcpStream>,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let service = layers::service(&app, peer);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(256)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

async fn http2_connection(
    app: Arc<App>,
    peer: Arc<Peer>,
    stream: TlsStream<TcpStream>,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let received_request = Arc::new(AtomicBool::new(false));
    let set_received = Arc::clone(&received_request);
    let inner = layers::service(&app, peer);
    let service = service_fn(move |request: Request<Incoming>| {
        set_received.store(true, Ordering::Relaxed);
        inner.call(request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // hyper pings only after the client's preface, so a client that never sends one
    // needs its own timeout.
    let preface_timeout = async {
        sleep(HEADERS).await;
        if received_request.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = preface_timeout => return Ok(()),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
