//! The HTTP server, with bounded connections, headers and bodies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use client::TaskGroup;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::access::ConsoleAccess;
use crate::guard::RequestGuard;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error of accept, such as too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How a listener is reached, and its bounds.
#[derive(Clone)]
pub(crate) struct ListenerOptions {
    /// `None`: without TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) max_connections: usize,
    pub(crate) max_header_bytes: usize,
}

impl ListenerOptions {
    /// For the browsers of one user, without TLS.
    pub(crate) const LOOPBACK: Self = Self {
        tls: None,
        max_connections: 64,
        max_header_bytes: 16 << 10,
    };

    /// For many users. A proxy adds tokens and cookies of its own.
    pub(crate) fn for_users(tls: Option<TlsAcceptor>) -> Self {
        Self {
            tls,
            max_connections: 512,
            max_header_bytes: 64 << 10,
        }
    }
}

pub(crate) struct ConsoleServer {
    pub(crate) access: ConsoleAccess,
    pub(crate) guard: RequestGuard,
}

impl ConsoleServer {
    /// Serves until the tasks are stopped.
    pub(crate) fn start(
        self: Arc<Self>,
        listener: TcpListener,
        options: ListenerOptions,
        tasks: &TaskGroup,
    ) {
        let connections = tasks.child();
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let permits = Arc::new(Semaphore::new(options.max_connections));
            let accept = async {
                loop {
                    let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                        return;
                    };
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            let (server, options) = (Arc::clone(&self), options.clone());
                            let shutdown = connections.shutdown().clone();
                            connections.spawn(async move {
                                let connection = server.serve_stream(stream, &options);
                                shutdown.run_until_triggered(connection).await;
                                drop(permit);
                            });
                        }
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept a connection");
                            tokio::time::sleep(ACCEPT_BACKOFF).await;
                        }
                    }
                }
            };
            shutdown.run_until_triggered(accept).await;
        });
    }

    async fn serve_stream(self: Arc<Self>, stream: TcpStream, options: &ListenerOptions) {
        let Some(tls) = &options.tls else {
            return self
                .serve_connection(stream, options.max_header_bytes)
                .await;
        };
        match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                self.serve_connection(stream, options.max_header_bytes)
                    .await
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        max_header_bytes: usize,
    ) {
        let service = service_fn(|request: http::Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(max_header_bytes)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection has ended");
        }
    }
}
