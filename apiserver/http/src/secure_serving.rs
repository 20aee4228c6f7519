//! Accepts TLS connections and serves HTTP/1.1 and HTTP/2 on them until shutdown. Each
//! connection is a task that this module owns and joins.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use auth::PeerCertificates;
use http::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use machinery::FailureLogLimiter;
use machinery::time::Clock;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::filters::{InnerService, ReceivedRequest, ServerResponse};
use crate::lingering_stream::LingeringStream;
use crate::metrics::ApiServerMetrics;
use crate::server_drain::ServerDrain;

const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for reading a request's headers. hyper starts it before the first byte, so
/// it is also the idle timeout (kube-apiserver's `IdleTimeout`).
const READ_HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// Bound on open streams per connection.
const MAX_CONCURRENT_STREAMS: u32 = 250;
/// Bytes buffered for a stream whose client reads slowly.
const STREAM_SEND_BUFFER_BYTES: usize = 64 * 1024;
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Bound on connections; more wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 20_000;

/// The handler chain around the server's handler.
pub(crate) trait HandlerChainService:
    InnerService<ReceivedRequest<Incoming>, Infallible, Future: Send> + Send + Sync + 'static
{
}

impl<S> HandlerChainService for S where
    S: InnerService<ReceivedRequest<Incoming>, Infallible, Future: Send> + Send + Sync + 'static
{
}

/// Serves TLS connections and drains them when the server stops. Clones share the drain
/// and the metrics.
#[derive(Clone)]
pub(crate) struct SecureServing {
    pub(crate) drain: Arc<ServerDrain>,
    pub(crate) metrics: Arc<ApiServerMetrics>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long a stopping server waits for streams.
    pub(crate) grace_period: Duration,
    /// How long it then waits for short requests.
    pub(crate) request_timeout: Duration,
}

impl SecureServing {
    /// Serves until `shutdown` resolves, then lets short requests finish, ends watches
    /// cleanly and returns. Connections still open after the grace period are aborted.
    pub(crate) async fn serve_connections(
        &self,
        chain: Arc<impl HandlerChainService>,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let acceptor = TlsAcceptor::from(tls);
        let mut connections = JoinSet::new();
        let stop = CancellationToken::new();
        let mut shutdown = pin!(shutdown);
        let failures = FailureLogLimiter::new();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        if failures.record_success("accept") {
                            tracing::info!("accepting connections again");
                        }
                        let connection = self.clone().serve_connection(
                            Arc::clone(&chain), acceptor.clone(), stream, stop.clone());
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
        self.drain.start(self.grace_period / 2);
        stop.cancel();
        let drained = async {
            while connections.join_next().await.is_some() {}
            self.drain.watches.join_upgraded().await;
        };
        let grace_period = async {
            sleep(self.grace_period).await;
            let short_requests = self.drain.short_requests.wait_for_all();
            let _ = timeout(self.request_timeout, short_requests).await;
        };
        let aborted = tokio::select! {
            () = drained => false,
            () = grace_period => true,
        };
        if aborted {
            tracing::warn!("aborting connections that are still open");
            connections.shutdown().await;
        }
        Ok(())
    }

    async fn serve_connection(
        self,
        chain: Arc<impl HandlerChainService>,
        acceptor: TlsAcceptor,
        stream: TcpStream,
        stop: CancellationToken,
    ) {
        let _ = stream.set_nodelay(true);
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = timeout(TLS_HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => accepted,
        };
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => {
                self.metrics.handshake_errors.inc();
                tracing::debug!(error = %e, "TLS handshake failed");
                return;
            }
            Err(_) => {
                self.metrics.handshake_errors.inc();
                return;
            }
        };
        let session = stream.get_ref().1;
        let address = stream.get_ref().0.peer_addr().ok();
        let peer = PeerCertificates::new(session.peer_certificates());
        if let Some(cert) = peer.chain().first()
            && let Ok(expires) = auth::x509::expiry(cert)
        {
            let remaining_seconds = expires - self.clock.now().as_second();
            self.metrics
                .observe_certificate_expiration(remaining_seconds as f64);
        }
        let h2 = session.alpn_protocol() == Some(b"h2");
        let service = ConnectionService {
            chain,
            peer,
            address: address.map(|a| a.ip().to_canonical()),
            has_body: Arc::default(),
        };
        let result = if h2 {
            serve_http2(service, stream, stop).await
        } else {
            serve_http1(service, stream, stop).await
        };
        if let Err(e) = result {
            tracing::debug!(error = %e, "connection failed");
        }
    }
}

/// The service of one connection: adds its peer to every request.
struct ConnectionService<C> {
    chain: Arc<C>,
    peer: PeerCertificates,
    address: Option<IpAddr>,
    /// Whether the last request has a body: the answer may come before all of it is read.
    has_body: Arc<AtomicBool>,
}

impl<C: HandlerChainService> Service<Request<Incoming>> for ConnectionService<C> {
    type Response = ServerResponse;
    type Error = Infallible;
    type Future = C::Future;

    fn call(&self, http: Request<Incoming>) -> C::Future {
        let has_body = !http.body().is_end_stream();
        self.has_body.store(has_body, Ordering::Relaxed);
        let received = ReceivedRequest::new(self.peer.clone(), self.address, http);
        self.chain.call(received)
    }
}

async fn serve_http1(
    service: ConnectionService<impl HandlerChainService>,
    stream: TlsStream<TcpStream>,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let stream = LingeringStream::new(stream, Arc::clone(&service.has_body));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_HEADER_TIMEOUT)
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

async fn serve_http2(
    inner: ConnectionService<impl HandlerChainService>,
    stream: TlsStream<TcpStream>,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let received_request = Arc::new(AtomicBool::new(false));
    let set_received = Arc::clone(&received_request);
    let service = service_fn(move |request: Request<Incoming>| {
        set_received.store(true, Ordering::Relaxed);
        inner.call(request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_send_buf_size(STREAM_SEND_BUFFER_BYTES)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // hyper pings only after the client's preface, so a client that never sends one
    // needs its own timeout.
    let preface_timeout = async {
        sleep(READ_HEADER_TIMEOUT).await;
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
