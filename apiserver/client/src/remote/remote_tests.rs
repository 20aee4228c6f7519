//! Tests of the remote API against real HTTPS servers in this process.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::StreamExt;
use http::Request;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use machinery::Gvr;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::tasks::ShutdownToken;
use crate::write_body::EncodedObjectBody;

static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

type TestHttpsServerResponse = Response<Either<Full<Bytes>, StreamBody<ChannelBody>>>;

/// A response body that a test feeds.
struct ChannelBody(mpsc::UnboundedReceiver<Bytes>);

impl futures_util::Stream for ChannelBody {
    type Item = std::result::Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|b| b.map(|b| Ok(Frame::data(b))))
    }
}

/// What the server does, and what it counted.
#[derive(Default)]
struct TestHttpsServerState {
    connections: AtomicUsize,
    requests: AtomicUsize,
    max_streams: AtomicUsize,
    open_watches: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
    /// Responses sent before the usual ones.
    first_responses: Mutex<Vec<(u16, String, String)>>,
    /// Responses by path.
    responses_by_path: Mutex<HashMap<&'static str, &'static str>>,
    goaway: AtomicBool,
    /// How many connections send GOAWAY once they have read a request, without processing
    /// it.
    refused_connections: AtomicUsize,
    /// Bodies of the requests that announced a length.
    bodies: Mutex<Vec<Bytes>>,
}

struct TestHttpsServer {
    state: Arc<TestHttpsServerState>,
    config: RestConfig,
    tasks: TaskGroup,
    address: std::net::SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    streams: u32,
}

impl TestHttpsServer {
    async fn start(protocols: &[&str], streams: u32) -> Self {
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

    fn serve(&self, listener: TcpListener) {
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

    fn client(&self) -> RemoteApi {
        RemoteApi::new(self.config.clone(), &self.tasks).unwrap()
    }

    fn count(&self, what: fn(&TestHttpsServerState) -> &AtomicUsize) -> usize {
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

/// Speaks just enough HTTP/2 to leave the first request unprocessed behind a GOAWAY.
async fn refuse_with_goaway(mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>) {
    const PREFACE: usize = 24;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    const GOAWAY_AT_0: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    stream.write_all(&SETTINGS).await.unwrap();
    stream.flush().await.unwrap();
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
    stream.write_all(&GOAWAY_AT_0).await.unwrap();
    stream.shutdown().await.unwrap();
}

fn respond(
    script: &TestHttpsServerState,
    open: &AtomicUsize,
    request: &Request<Incoming>,
) -> TestHttpsServerResponse {
    script.requests.fetch_add(1, Ordering::SeqCst);
    let whole = |text: String| Either::Left(Full::new(Bytes::from(text)));
    if request.headers()["authorization"] != "Bearer sesame" {
        return Response::builder()
            .status(401)
            .body(whole("who?".into()))
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
        return response.body(whole(text)).unwrap();
    }
    if let Some(text) = script.responses_by_path.lock().get(request.uri().path()) {
        return Response::new(whole((*text).to_owned()));
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
    Response::new(whole(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "resourceVersion": "5"}}).to_string()))
}

fn event(n: u64) -> Bytes {
    format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"n\",\"resourceVersion\":\"{n}\"}}}}}}\n").into()
}

async fn watch(client: &RemoteApi) -> WatchStream {
    client
        .watch(
            ResourcePath::collection(&MAPS, ""),
            &WatchOptions::default(),
        )
        .await
        .unwrap()
}

#[tokio::test]
async fn a_connection_is_opened_before_the_peers_limit_is_reached() {
    let server = TestHttpsServer::start(&["h2"], 10).await;
    let client = server.client();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(watch(&client).await);
    }
    // 9 of 10 streams on each connection: a call still goes through at once.
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    assert_eq!(
        (
            server.count(|s| &s.connections),
            server.count(|s| &s.max_streams)
        ),
        (3, 9)
    );
    let senders = std::mem::take(&mut *server.state.open_watches.lock());
    for (n, send) in senders.iter().enumerate() {
        send.send(event(n as u64 + 1)).unwrap();
    }
    for stream in &mut streams {
        assert!(matches!(
            stream.next().await.unwrap().unwrap(),
            WatchEvent::Added(_)
        ));
    }
    drop(senders);
    for stream in &mut streams {
        assert!(stream.next().await.is_none());
    }
    drop(streams);
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    assert_eq!(
        client.pool.open_connections(),
        1,
        "surplus empty connections are closed"
    );
    server.tasks.stop().await;
}

#[tokio::test]
async fn a_burst_shares_one_connection() {
    let server = TestHttpsServer::start(&["h2", "http/1.1"], 100).await;
    let client = server.client();
    let calls = (0..40).map(|_| client.get(ResourcePath::object(&MAPS, "ns", "m")));
    for done in futures_util::future::join_all(calls).await {
        assert_eq!(done.unwrap().revision(), 5);
    }
    assert_eq!(server.count(|s| &s.connections), 1);
    server.tasks.stop().await;
}

#[tokio::test]
async fn a_request_refused_with_goaway_is_sent_again() {
    let server = TestHttpsServer::start(&["h2"], 10).await;
    let client = server.client();
    let made = json!({"metadata": {"name": "m"}});
    let options = WriteOptions::default();
    let create = || {
        client.create(
            ResourcePath::collection(&MAPS, "ns"),
            made.clone().into(),
            &options,
        )
    };
    server.state.refused_connections.store(1, Ordering::SeqCst);
    create().await.unwrap();
    assert_eq!(server.count(|s| &s.connections), 2);
    assert_eq!(server.count(|s| &s.requests), 1);
    // A request that is not retried, as to a webhook, was not processed either.
    client.pool.drop_connections();
    server.state.refused_connections.store(1, Ordering::SeqCst);
    client.post("/hook", Bytes::new(), 1000).await.unwrap();
    assert_eq!(server.count(|s| &s.requests), 2);
    // It is sent again only once.
    client.pool.drop_connections();
    server.state.refused_connections.store(2, Ordering::SeqCst);
    create().await.unwrap_err();
    assert_eq!(server.count(|s| &s.requests), 2);
}

#[tokio::test]
async fn goaway_moves_new_calls_and_leaves_open_watches() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    let mut old = watch(&client).await;
    server.state.goaway.store(true, Ordering::SeqCst);
    while server.count(|s| &s.connections) < 2 {
        client
            .get(ResourcePath::object(&MAPS, "ns", "m"))
            .await
            .unwrap();
    }
    let send = server.state.open_watches.lock().remove(0);
    send.send(event(8)).unwrap();
    assert!(
        matches!(old.next().await.unwrap().unwrap(), WatchEvent::Added(o) if o.revision() == 8)
    );
    server.tasks.stop().await;
}

#[tokio::test]
async fn an_unreachable_server_fails_fast_and_recovers() {
    let mut server = TestHttpsServer::start(&["h2"], 100).await;
    let listening = server.tasks.clone();
    server.tasks = TaskGroup::new(ShutdownToken::new());
    let client = server.client();
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    let mut broken = watch(&client).await;
    listening.stop().await;
    assert!(!matches!(broken.next().await, Some(Ok(_))));
    let error = client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("localhost") && !text.contains("sesame"),
        "{text}"
    );
    server.serve(TcpListener::bind(server.address).await.unwrap());
    let back = async {
        while client
            .get(ResourcePath::object(&MAPS, "ns", "m"))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), back)
        .await
        .unwrap();
    server.tasks.stop().await;
}

#[tokio::test]
async fn http1_is_spoken_where_there_is_no_http2() {
    let server = TestHttpsServer::start(&["http/1.1"], 0).await;
    let client = server.client();
    for _ in 0..3 {
        client
            .get(ResourcePath::object(&MAPS, "ns", "m"))
            .await
            .unwrap();
    }
    assert_eq!(server.count(|s| &s.connections), 1);
    let mut stream = watch(&client).await;
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();
    let send = server.state.open_watches.lock().remove(0);
    send.send(event(3)).unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    assert_eq!(server.count(|s| &s.connections), 2);
    server.tasks.stop().await;
}

/// The body is longer than a frame and than the flow control window.
#[tokio::test]
async fn a_body_in_pieces_arrives_as_a_whole() {
    let object = json!({"data": {"k": "x".repeat(300 << 10)}, "metadata": {"name": "m"}});
    let text = Bytes::from(object.to_string());
    for protocol in ["h2", "http/1.1"] {
        let server = TestHttpsServer::start(&[protocol], 100).await;
        let client = server.client();
        let cuts = [(0, 9), (9, 9), (9, 200_000), (200_000, text.len())];
        let body: EncodedObjectBody = cuts
            .map(|(from, to)| text.slice(from..to))
            .into_iter()
            .collect();
        let (all, one) = (
            ResourcePath::collection(&MAPS, "ns"),
            ResourcePath::object(&MAPS, "ns", "m"),
        );
        let options = WriteOptions::default();
        client
            .create(all, body.clone().into(), &options)
            .await
            .unwrap();
        client.update(one, body.into(), &options).await.unwrap();
        client
            .update(one, object.clone().into(), &options)
            .await
            .unwrap();
        assert_eq!(*server.state.bodies.lock(), [&text; 3]);
        server.tasks.stop().await;
    }
}

#[tokio::test]
async fn answers_are_repeated_understood_or_refused() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "gone", "code": 404}).to_string();
    // (method is a write, responses before the usual one, requests made, error)
    type TestCase<'a> = (bool, Vec<(u16, &'a str, &'a str)>, usize, Option<&'a str>);
    let table: [TestCase<'_>; 8] = [
        (false, vec![(429, "0", ""), (503, "0", "")], 3, None),
        (true, vec![(429, "0", "")], 2, None),
        (
            true,
            vec![(503, "0", "down")],
            1,
            Some("503 Service Unavailable: down"),
        ),
        (
            false,
            vec![(503, "", "")],
            1,
            Some("503 Service Unavailable"),
        ),
        (
            false,
            vec![
                (429, "0", "a"),
                (429, "0", "b"),
                (429, "0", "c"),
                (429, "0", "d"),
            ],
            4,
            Some("429 Too Many Requests: d"),
        ),
        (false, vec![(404, "", &status)], 1, Some("gone")),
        (
            false,
            vec![(500, "", "<html>")],
            1,
            Some("500 Internal Server Error: <html>"),
        ),
        (false, vec![(200, "", "[]")], 1, Some("unexpected reply")),
    ];
    for (write, answers, requests, expected) in table {
        let told = answers
            .iter()
            .map(|(c, r, t)| (*c, (*r).to_owned(), (*t).to_owned()));
        *server.state.first_responses.lock() = told.collect();
        server.state.requests.store(0, Ordering::SeqCst);
        let at = ResourcePath::object(&MAPS, "ns", "m");
        let outcome = if write {
            client
                .create(
                    ResourcePath::collection(&MAPS, "ns"),
                    json!({}).into(),
                    &WriteOptions::default(),
                )
                .await
        } else {
            client.get(at).await
        };
        let text = outcome.err().map(|e| e.to_string());
        assert_eq!(text.is_some(), expected.is_some(), "{text:?}");
        assert!(
            text.unwrap_or_default()
                .starts_with(expected.unwrap_or_default())
        );
        assert_eq!(server.count(|s| &s.requests), requests, "{answers:?}");
    }
    server.tasks.stop().await;
}

#[tokio::test]
async fn refused_credentials_are_read_again() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "stale").unwrap();
    let mut config = server.config.clone();
    config.auth.token_file = Some(path.clone());
    let client = RemoteApi::new(config, &server.tasks).unwrap();
    let error = client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap_err();
    assert_eq!(error.status().unwrap().code, 401);
    std::fs::write(&path, "sesame").unwrap();
    client
        .get(ResourcePath::object(&MAPS, "ns", "m"))
        .await
        .unwrap();

    let mut unknown = server.config.clone();
    unknown.ca = Some(
        rcgen::generate_simple_self_signed(["x".to_owned()])
            .unwrap()
            .cert
            .pem()
            .into_bytes(),
    );
    let error = RemoteApi::new(unknown.clone(), &server.tasks)
        .unwrap()
        .get_raw("/version")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    unknown.ca = None;
    unknown.insecure_skip_tls_verify = true;
    assert!(
        RemoteApi::new(unknown.clone(), &server.tasks)
            .unwrap()
            .get_raw("/version")
            .await
            .is_ok()
    );
    unknown.auth.client_certificate = Some(ClientCertificate {
        certificate: b"x".to_vec(),
        key: Redacted(b"y".to_vec()),
    });
    let error = RemoteApi::new(unknown, &server.tasks)
        .err()
        .unwrap()
        .to_string();
    assert!(error.ends_with("client certificate is not PEM"), "{error}");
    server.tasks.stop().await;
}

#[tokio::test]
async fn both_forms_of_discovery_are_read() {
    let server = TestHttpsServer::start(&["h2"], 100).await;
    let client = server.client();
    *server.state.responses_by_path.lock() = HashMap::from([
        (
            "/api",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":""},"versions":[{"version":"v1","resources":[
            {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get","list"],"shortNames":["po"],"subresources":[{"subresource":"status"}]}]}]}]}"#,
        ),
        (
            "/apis",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"x.io"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#,
        ),
    ]);
    let new = client.discover().await.unwrap();
    *server.state.responses_by_path.lock() = HashMap::from([
        ("/api", r#"{"kind":"APIVersions","versions":["v1"]}"#),
        (
            "/apis",
            r#"{"kind":"APIGroupList","groups":[{"name":"x.io","versions":[{"groupVersion":"x.io/v1"}],"preferredVersion":{"groupVersion":"x.io/v1"}},
            {"name":"gone.io","versions":[{"groupVersion":"gone.io/v1"}]}]}"#,
        ),
        (
            "/api/v1",
            r#"{"kind":"APIResourceList","resources":[{"name":"pods/status","kind":"Pod","verbs":[]},
            {"name":"pods","namespaced":true,"kind":"Pod","verbs":["get","list"],"shortNames":["po"]}]}"#,
        ),
        ("/apis/x.io/v1", "no JSON"),
    ]);
    let old = client.discover().await.unwrap();
    assert_eq!(new.resources, old.resources);
    assert_eq!((new.resources.len(), &*new.resources[0].kind), (1, "Pod"));
    assert_eq!(
        old.failed_group_versions.len(),
        1,
        "a group that is not found is not served"
    );
    assert_eq!(
        (
            &*new.failed_group_versions[0].0,
            &*old.failed_group_versions[0].0
        ),
        ("x.io/v1", "x.io/v1")
    );
    // A group that is filtered out is not requested: it may be our own.
    let core = client
        .discover_groups(&|group| group.is_empty())
        .await
        .unwrap();
    assert_eq!(
        (core.resources, core.failed_group_versions),
        (old.resources, vec![])
    );
    server.tasks.stop().await;
}
