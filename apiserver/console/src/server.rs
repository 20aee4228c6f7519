//! The HTTP server on loopback, with bounded connections, headers and bodies.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::TaskGroup;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::console::Console;
use crate::guard::RequestGuard;
use crate::session::Sessions;

const MAX_CONNECTIONS: usize = 64;
/// Pages that are kept up to date at once; each runs until its tab is hidden or closed.
const MAX_LIVE_PAGES: usize = 32;
const MAX_HEADER_BYTES: usize = 16 << 10;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error of accept, such as too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Prints the link that opens the console.
pub(crate) type LinkPrinter = Box<dyn Fn(String) + Send + Sync>;

pub(crate) struct ConsoleServer {
    pub(crate) console: Arc<Console>,
    pub(crate) guard: RequestGuard,
    pub(crate) sessions: Sessions,
    pub(crate) live_pages: Arc<Semaphore>,
    address: SocketAddr,
    print: LinkPrinter,
}

impl ConsoleServer {
    pub(crate) fn new(console: Arc<Console>, address: SocketAddr, print: LinkPrinter) -> Arc<Self> {
        Arc::new(Self {
            console,
            guard: RequestGuard::new(address),
            sessions: Sessions::default(),
            live_pages: Arc::new(Semaphore::new(MAX_LIVE_PAGES)),
            address,
            print,
        })
    }

    /// Prints a link for the next browser.
    pub(crate) fn print_link(&self) {
        let token = self.sessions.issue_link_token();
        (self.print)(format!("http://{}/login?token={token}", self.address));
    }

    /// Serves until the tasks are stopped.
    pub(crate) fn start(self: Arc<Self>, listener: TcpListener, tasks: &TaskGroup) {
        let connections = tasks.child();
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            let accept = async {
                loop {
                    let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                        return;
                    };
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            let server = Arc::clone(&self);
                            let shutdown = connections.shutdown().clone();
                            connections.spawn(async move {
                                let connection = server.serve_connection(stream, permit);
                                shutdown.run_until_triggered(connection).await;
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

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, _permit: OwnedSemaphorePermit) {
        let service = service_fn(|request: http::Request<Incoming>| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection has ended");
        }
    }
}
