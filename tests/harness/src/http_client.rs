//! An asynchronous HTTP/1.1, HTTP/2 and TLS client for tests that stream or upgrade.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::raw_http::client_config;

pub const CLUSTERS_PATH: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(60);
pub type TestHttpBody = BoxBody<Bytes, hyper::Error>;

/// Awaits `work`; panics with `description` after [`HTTP_TIMEOUT`].
pub async fn within_timeout<T>(description: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(HTTP_TIMEOUT, work).await;
    done.unwrap_or_else(|_| panic!("not in time: {description}"))
}

pub fn full_body(bytes: impl Into<Bytes>) -> TestHttpBody {
    Full::new(bytes.into()).map_err(|n| match n {}).boxed()
}

/// A client of one API server with one identity. The server is a standalone control plane
/// or the kube-apiserver in front of an aggregated one.
#[derive(Clone)]
pub struct HttpTestClient {
    /// `host:port`
    pub address: String,
    /// The name in the server's certificate.
    name: String,
    tls: ClientConfig,
}

/// A complete response.
pub struct HttpTestResponse {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpTestResponse {
    pub fn json(&self) -> Value {
        machinery::json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }
}

impl HttpTestClient {
    /// `name` is the one in the server's certificate. `ca`, and the certificate and key of
    /// the identity, are PEM; without an identity requests are anonymous.
    pub fn new(address: &str, name: &str, ca: &[u8], identity: Option<(&[u8], &[u8])>) -> Self {
        let tls = client_config(ca, identity);
        Self {
            address: address.to_owned(),
            name: name.to_owned(),
            tls,
        }
    }

    /// Opens a TLS connection that offers one ALPN protocol.
    pub async fn connect_tls(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        let tcp = TcpStream::connect(&self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::try_from(self.name.clone()).unwrap();
        let connector = TlsConnector::from(Arc::new(tls));
        connector.connect(name, tcp).await.unwrap()
    }

    fn build_request(&self, ask: HttpTestRequest) -> Request<TestHttpBody> {
        let mut builder = Request::builder()
            .method(ask.method)
            .uri(format!("https://{}{}", self.address, ask.path));
        for (name, value) in ask.headers {
            builder = builder.header(name, value);
        }
        builder.body(ask.body).unwrap()
    }

    /// Sends a request over HTTP/1.1 on a new connection.
    pub async fn send(&self, ask: HttpTestRequest) -> Response<Incoming> {
        let io = TokioIo::new(self.connect_tls(b"http/1.1").await);
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = self.build_request(ask);
        let path = request.uri().path_and_query().unwrap().clone();
        *request.uri_mut() = path.into();
        let host = self.address.parse().unwrap();
        request.headers_mut().insert("host", host);
        within_timeout("a reply", sender.send_request(request))
            .await
            .unwrap()
    }

    /// The same over HTTP/2.
    pub async fn send_http2(&self, ask: HttpTestRequest) -> Response<Incoming> {
        let io = TokioIo::new(self.connect_tls(b"h2").await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let request = self.build_request(ask);
        within_timeout("a reply", sender.send_request(request))
            .await
            .unwrap()
    }

    pub async fn call(&self, ask: HttpTestRequest) -> HttpTestResponse {
        collect_response(self.send(ask).await).await
    }

    pub async fn get(&self, path: &str) -> HttpTestResponse {
        self.call(HttpTestRequest::new(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> HttpTestResponse {
        self.call(HttpTestRequest::new(Method::POST, path).json(body))
            .await
    }

    /// Requests an upgrade; returns the head of the response and the stream behind it.
    /// `early` is sent right after the request.
    pub async fn upgrade(
        &self,
        path: &str,
        protocol: &str,
        early: &[u8],
    ) -> (String, TlsStream<TcpStream>) {
        let mut stream = self.connect_tls(b"http/1.1").await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(early).await.unwrap();
        stream.flush().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within_timeout("the head", stream.read_u8()).await.unwrap());
        }
        (String::from_utf8(head).unwrap(), stream)
    }
}

pub async fn collect_response(response: Response<Incoming>) -> HttpTestResponse {
    let (parts, body) = response.into_parts();
    let body = within_timeout("a body", body.collect())
        .await
        .unwrap()
        .to_bytes();
    HttpTestResponse {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body,
    }
}

/// A request to send.
pub struct HttpTestRequest {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: TestHttpBody,
}

impl HttpTestRequest {
    pub fn new(method: Method, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: full_body(""),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: TestHttpBody) -> Self {
        self.body = body;
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(full_body(body.to_string()))
    }
}

/// The path of a request to a cluster through the cluster proxy.
pub fn cluster_proxy_path(cluster: &str, path: &str) -> String {
    format!("{CLUSTERS_PATH}/{cluster}/proxy{path}")
}
