//! Serves metrics and health probes over plain HTTP, for commands without an API server.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use client::TaskGroup;
use flotilla_metrics::{encode_text, process_registry};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const MAX_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
const METRICS_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Where metrics are served unless a flag says otherwise. Karmada serves them at every address.
pub const LOOPBACK_METRICS: &str = "127.0.0.1:8080";

/// Where to listen, as controller-runtime writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    Disabled,
    /// At every address.
    Port(u16),
    Address(SocketAddr),
}

impl BindAddress {
    /// Parses `IP:PORT`, `:PORT`, or `0` for no listener.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self::Disabled);
        }
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|e| format!("port {port:?}: {e}"))?;
            return Ok(Self::Port(port));
        }
        let address = text.parse().map_err(|e| format!("{text:?}: {e}"))?;
        Ok(Self::Address(address))
    }

    /// The listener, unless there is none.
    pub async fn bind(self) -> std::io::Result<Option<TcpListener>> {
        let listener = match self {
            Self::Disabled => return Ok(None),
            Self::Address(address) => TcpListener::bind(address).await,
            // Machines without IPv6 refuse its address.
            Self::Port(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
            },
        };
        let describe = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("cannot listen on {self:?}: {error}"))
        };
        listener.map(Some).map_err(describe)
    }
}

/// The content that a listener serves.
#[derive(Clone)]
pub enum ProbeEndpoint {
    /// `/metrics`
    Metrics,
    /// `/healthz`, and `/readyz` by the flag.
    Health(Arc<AtomicBool>),
}

/// Serves connections until the tasks shut down.
pub fn serve_probes(listener: TcpListener, endpoint: ProbeEndpoint, tasks: &TaskGroup) {
    let (group, shutdown) = (tasks.clone(), tasks.shutdown().clone());
    tasks.spawn(async move {
        let accepting = accept(listener, endpoint, group);
        shutdown.run_until_triggered(accepting).await;
    });
}

async fn accept(listener: TcpListener, endpoint: ProbeEndpoint, tasks: TaskGroup) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            continue;
        };
        let (endpoint, shutdown) = (endpoint.clone(), tasks.shutdown().clone());
        tasks.spawn(async move {
            let serving = serve_connection(stream, endpoint);
            shutdown.run_until_triggered(serving).await;
            drop(permit);
        });
    }
}

async fn serve_connection(stream: TcpStream, endpoint: ProbeEndpoint) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let response = respond(&endpoint, request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection of a probe failed");
    }
}

fn respond(endpoint: &ProbeEndpoint, path: &str) -> Response<Full<Bytes>> {
    let (status, body) = match (endpoint, path) {
        (ProbeEndpoint::Metrics, "/metrics") => {
            (StatusCode::OK, encode_text(&[process_registry()]).into())
        }
        (ProbeEndpoint::Health(_), "/healthz") => (StatusCode::OK, Bytes::from_static(b"ok")),
        (ProbeEndpoint::Health(ready), "/readyz") => match ready.load(Ordering::Acquire) {
            true => (StatusCode::OK, Bytes::from_static(b"ok")),
            false => (
                StatusCode::SERVICE_UNAVAILABLE,
                Bytes::from_static(b"not ready yet"),
            ),
        },
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"not found")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, METRICS_CONTENT_TYPE);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listener_serves_its_own_paths() {
        let ready = Arc::new(AtomicBool::new(false));
        let health = ProbeEndpoint::Health(Arc::clone(&ready));
        let status = |endpoint: &ProbeEndpoint, path: &str| respond(endpoint, path).status();
        for (endpoint, path, expected) in [
            (&health, "/healthz", StatusCode::OK),
            (&health, "/readyz", StatusCode::SERVICE_UNAVAILABLE),
            (&health, "/metrics", StatusCode::NOT_FOUND),
            (&ProbeEndpoint::Metrics, "/metrics", StatusCode::OK),
            (&ProbeEndpoint::Metrics, "/healthz", StatusCode::NOT_FOUND),
        ] {
            assert_eq!(status(endpoint, path), expected, "{path}");
        }
        ready.store(true, Ordering::Release);
        assert_eq!(status(&health, "/readyz"), StatusCode::OK);
    }

    #[test]
    fn addresses_are_those_of_controller_runtime() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 80));
        for (text, expected) in [
            ("0", Ok(BindAddress::Disabled)),
            (":8080", Ok(BindAddress::Port(8080))),
            ("127.0.0.1:80", Ok(BindAddress::Address(loopback))),
            (":x", Err(())),
            ("here", Err(())),
        ] {
            assert_eq!(BindAddress::parse(text).map_err(drop), expected, "{text}");
        }
    }
}
