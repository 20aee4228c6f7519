//! An HTTPS server in the process of the tests, which speaks HTTP/2 and HTTP/1.1.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{Redacted, RemoteApi, RestConfig};
use crate::tasks::{ShutdownToken, TaskGroup};

type TestHttpsServerResponse = Response<Either<Full<Bytes>, StreamBody<ChannelBody>>>;

/// A response body that a test feeds.
struct ChannelBody(mpsc::UnboundedReceiver<Bytes>);

impl futures_util::Stream for ChannelBody {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|b| b.map(|b| Ok(Frame::data(b))))
    }
}

/// The behavior of the server, and its counters.
#[derive(Default)]
pub(super) struct TestHttpsServerState {
    pub(super) connections: AtomicUsize,
    pub(super) requests: AtomicUsize,
    pub(super) max_streams: AtomicUsize,
    pub(super) open_watches: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
    /// Responses sent before the usual ones.
    pub(super) first_responses: Mutex<Vec<(u16, String, String)>>,
    /// Responses by path, or by path and query.
    pub(super) responses_by_path: Mutex<HashMap<&'static str, &'static str>>,
    pub(super) goaway: AtomicBool,
    /// How many connections send GOAWAY once they have read a request, without processing
    /// it.
    pub(super) refused_connections: AtomicUsize,
    /// Whether connections end after the TLS handshake.
    pub(super) is_silent: AtomicBool,
    /// Bodies of the requests that announced a length.
    pub(super) bodies: Mutex<Vec<Bytes>>,
}

pub(super) struct TestHttpsServer {
    pub(super) state: Arc<TestHttpsServerState>,
    pub(super) config: RestConfig,
    pub(super) tasks: TaskGroup,
    pub(super) address: std::net::SocketAddr,
    pub(super) tls: Arc<rustls::ServerConfig>,
    pub(super) streams: u32,
}

impl TestHttpsServer {
    pub(super) async fn start(protocols: &[&str], streams: u32) -> Self {
        let params = || rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let mut authority = params();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let (ca_key, key) = (
            rcgen::KeyPair::generate().unwrap(),
            rcgen::KeyPair::generate().unwrap(),
        );
        let ca = authority.self_signed(&ca_key).unwrap();
        let leaf = params()
            .signed_by(&key, &rcgen::Issuer::new(authority, &ca_key))
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(leaf.pem().as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = RestConfig::new(&format!("https://localhost:{}", address.port())).unwrap();
        config.ca = Some(ca.pem().into_bytes());
        config.auth.token = Some(Redacted("sesame".into()));
        let server = Self {
            state: Arc::default(),
            config,
            tasks: TaskGroup::new(ShutdownToken::new()),
            address,
            tls: Arc::new(tls),
            streams,
        };
        server.serve(listener);
        server
    }

    pub(super) fn serve(&self, listener: TcpListener) {
        let (script, tls, streams) = (Arc::clone(&self.state), Arc::clone(&self.tls), self.streams);
        let tasks = self.tasks.clone();
        self.tasks.spawn({
            let shutdown = self.tasks.shutdown().clone();
            async move {
                while let Some(Ok((tcp, _))) = shutdown.run_until_triggered(listener.accept()).await
                {
                    let (script, tls, end) =
                        (Arc::clone(&script), Arc::clone(&tls), shutdown.clone());
                    tasks.spawn(async move {
                        end.run_until_triggered(serve_connection(script, tls, tcp, streams))
                            .await;
                    });
                }
            }
        });
    }

    pub(super) fn client(&self) -> RemoteApi {
        RemoteApi::new(self.config.clone(), &self.tasks).unwrap()
    }

    pub(super) fn count(&self, what: fn(&TestHttpsServerState) -> &AtomicUsize) -> usize {
        what(&self.state).load(Ordering::SeqCst)
    }
}

async fn serve_connection(
    script: Arc<TestHttpsServerState>,
    tls: Arc<rustls::ServerConfig>,
    tcp: tokio::net::TcpStream,
    streams: u32,
) {
    let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(tcp).await else {
        return;
    };
    script.connections.fetch_add(1, Ordering::SeqCst);
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let own_streams = Arc::new(AtomicUsize::new(0));
    let service = service_fn(|request: Request<Incoming>| {
        let (script, open) = (Arc::clone(&script), Arc::clone(&own_streams));
        async move {
            if request.version() == http::Version::HTTP_11 {
                // Servers refuse a request of HTTP/1.1 without a Host.
                assert!(request.headers().contains_key("host"));
                assert_eq!(request.uri().authority(), None);
            }
            let response = respond(&script, &open, &request);
            // A body must be as long as the client announced.
            let length = request.headers().get("content-length").cloned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            if let Some(length) = length {
                assert_eq!(length.to_str().unwrap(), body.len().to_string());
                script.bodies.lock().push(body);
            }
            Ok::<_, Infallible>(response)
        }
    });
    if script.is_silent.load(Ordering::SeqCst) {
        return;
    }
    let once_less = |n: usize| n.checked_sub(1);
    let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
    if http2
        && script
            .refused_connections
            .fetch_update(set, get, once_less)
            .is_ok()
    {
        return refuse_with_goaway(stream).await;
    }
    if http2 {
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        loop {
            tokio::select! {
                _ = &mut serving => return,
                () = tokio::time::sleep(Duration::from_millis(5)), if !script.goaway.load(Ordering::SeqCst) => {}
            }
            if script.goaway.swap(false, Ordering::SeqCst) {
                serving.as_mut().graceful_shutdown();
            }
        }
    }
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Speaks just enough HTTP/2 to leave the first request unprocessed behind a GOAWAY. It reads
/// the request before it sends its SETTINGS, as a server far away would.
async fn refuse_with_goaway(mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>) {
    const PREFACE: usize = 24;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    const GOAWAY_AT_0: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    stream.write_all(&SETTINGS).await.unwrap();
    stream.write_all(&GOAWAY_AT_0).await.unwrap();
    stream.shutdown().await.unwrap();
}

fn respond(
    script: &TestHttpsServerState,
    open: &AtomicUsize,
    request: &Request<Incoming>,
) -> TestHttpsServerResponse {
    script.requests.fetch_add(1, Ordering::SeqCst);
    let full_body = |text: String| Either::Left(Full::new(Bytes::from(text)));
    if request.headers()["authorization"] != "Bearer sesame" {
        return Response::builder()
            .status(401)
            .body(full_body("who?".into()))
            .unwrap();
    }
    let first = {
        let mut first = script.first_responses.lock();
        (!first.is_empty()).then(|| first.remove(0))
    };
    if let Some((code, retry, text)) = first {
        let mut response = Response::builder().status(code);
        if !retry.is_empty() {
            response = response.header("retry-after", retry);
        }
        return response.body(full_body(text)).unwrap();
    }
    let by_path = script.responses_by_path.lock();
    let with_query = request.uri().path_and_query().map(PathAndQuery::as_str);
    let by_query = with_query.and_then(|path| by_path.get(path));
    if let Some(text) = by_query.or_else(|| by_path.get(request.uri().path())) {
        return Response::new(full_body((*text).to_owned()));
    }
    if request
        .uri()
        .query()
        .unwrap_or_default()
        .contains("watch=1")
    {
        let now = open.fetch_add(1, Ordering::SeqCst) + 1;
        script.max_streams.fetch_max(now, Ordering::SeqCst);
        let (send, receive) = mpsc::unbounded_channel();
        script.open_watches.lock().push(send);
        return Response::new(Either::Right(StreamBody::new(ChannelBody(receive))));
    }
    Response::new(full_body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "resourceVersion": "5"}}).to_string()))
}
