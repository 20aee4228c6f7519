//! The plain HTTP listeners of the agent: one for `/metrics`, one for `/healthz` and `/readyz`,
//! with karmada-agent's flags.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use flotilla_runtime::TaskGroup;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The address that starts no listener.
const DISABLED: &str = "0";
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The connections at once to one listener.
const MAX_CONNECTIONS: usize = 32;

#[derive(Args)]
pub(crate) struct AgentEndpointArgs {
    /// The TCP address that the agent should bind to for serving prometheus metrics (e.g.
    /// 127.0.0.1:8080, :8080). It can be set to "0" to disable the metrics serving.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    metrics_bind_address: String,
    /// The TCP address that the agent should bind to for serving health probes (e.g.
    /// 127.0.0.1:10357, :10357). It can be set to "0" to disable serving the health probe.
    #[arg(long, value_name = "ADDRESS", default_value = ":10357")]
    health_probe_bind_address: String,
}

/// Whether the controllers of the agent run. Clones share one value.
#[derive(Clone, Default)]
pub(crate) struct AgentReadiness(Arc<AtomicBool>);

impl AgentReadiness {
    pub(crate) fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }
}

type Responder = Arc<dyn Fn(&str) -> Option<Response<Full<Bytes>>> + Send + Sync>;

impl AgentEndpointArgs {
    /// Listens and serves until `tasks` are stopped.
    pub(crate) async fn serve(
        &self,
        readiness: &AgentReadiness,
        tasks: &TaskGroup,
    ) -> anyhow::Result<()> {
        let health = readiness.clone();
        let health = move |path: &str| health_response(path, &health);
        for (flag, address, respond) in [
            (
                "--metrics-bind-address",
                &self.metrics_bind_address,
                Arc::new(metrics_response) as Responder,
            ),
            (
                "--health-probe-bind-address",
                &self.health_probe_bind_address,
                Arc::new(health) as Responder,
            ),
        ] {
            if address == DISABLED {
                continue;
            }
            let address = parse_address(address).with_context(|| flag.to_owned())?;
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("{flag}: {address}"))?;
            let connections = tasks.clone();
            tasks.spawn(accept_connections(listener, respond, connections));
        }
        Ok(())
    }
}

/// An address, whose host may be absent: then it is that of all interfaces.
fn parse_address(text: &str) -> anyhow::Result<SocketAddr> {
    let full = match text.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => text.to_owned(),
    };
    full.parse()
        .with_context(|| format!("{text:?} is no address of the form IP:PORT"))
}

async fn accept_connections(listener: TcpListener, respond: Responder, tasks: TaskGroup) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accepting = async {
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let respond = Arc::clone(&respond);
            let service = service_fn(move |request: Request<Incoming>| {
                let response = respond_to(&request, &respond);
                async move { Ok::<_, Infallible>(response) }
            });
            let shutdown = tasks.shutdown().clone();
            tasks.spawn(async move {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_READ_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service);
                shutdown.run_until_triggered(connection).await;
                drop(permit);
            });
        }
    };
    tasks.shutdown().run_until_triggered(accepting).await;
}

fn respond_to(request: &Request<Incoming>, respond: &Responder) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text_response(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    }
    let response = respond(request.uri().path());
    response.unwrap_or_else(|| text_response(StatusCode::NOT_FOUND, "404 page not found"))
}

fn text_response(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

fn metrics_response(path: &str) -> Option<Response<Full<Bytes>>> {
    let text = || flotilla_metrics::encode_text(&[flotilla_metrics::process_registry()]);
    (path == "/metrics").then(|| {
        let mut response = text_response(StatusCode::OK, text());
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    })
}

fn health_response(path: &str, readiness: &AgentReadiness) -> Option<Response<Full<Bytes>>> {
    match path {
        "/healthz" => Some(text_response(StatusCode::OK, "ok")),
        "/readyz" if readiness.0.load(Ordering::Relaxed) => {
            Some(text_response(StatusCode::OK, "ok"))
        }
        "/readyz" => Some(text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "the controllers have not started",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_omit_the_host() {
        for (text, expected) in [
            (":8080", Some("0.0.0.0:8080")),
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("[::1]:1", Some("[::1]:1")),
            ("8080", None),
            ("host:1", None),
            (":x", None),
        ] {
            let parsed = parse_address(text).ok().map(|a| a.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
