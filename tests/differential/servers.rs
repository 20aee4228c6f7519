//! Starts the two servers that are compared, and connects to them.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use harness::daemon::TestDir;
use harness::http_client::{TestHttpBody, full_body};
use harness::{Daemon, EtcdCluster, HttpTestClient, ServerProcess, etcd, port};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::differential::request::PreparedRequest;

const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Watches end after a second.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Flotilla, and Kubernetes' server of custom resources with Flotilla as its core API server.
pub(crate) struct ServerPair {
    flotilla: HttpTestClient,
    reference: HttpTestClient,
    // Dropped in this order.
    _reference_process: Daemon,
    _flotilla_process: ServerProcess,
    _etcd: EtcdCluster,
    _dir: TestDir,
}

/// A reply as it came.
pub(crate) struct ServerReply {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl ServerReply {
    /// The connection ended before the reply did, as it does when a handler panics.
    fn failure(message: &str) -> Self {
        Self {
            code: 0,
            content_type: String::new(),
            warnings: Vec::new(),
            body: message.as_bytes().to_vec(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Option<Value> {
        machinery::json::from_slice(&self.body).ok()
    }
}

/// A connection to one of the two as an administrator.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    pub(crate) name: &'static str,
    address: String,
    sender: SendRequest<TestHttpBody>,
}

impl ServerConnection {
    pub(crate) async fn open(name: &'static str, client: &HttpTestClient) -> Self {
        let io = TokioIo::new(client.connect_tls(b"h2").await);
        let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Self {
            name,
            address: client.address.clone(),
            sender,
        }
    }

    /// Sends a request, again if the server is not ready for it: both are not for a moment after the
    /// stored version of a kind has changed.
    pub(crate) async fn send(&self, request: PreparedRequest) -> ServerReply {
        let end = Instant::now() + READY_TIMEOUT;
        loop {
            let reply = self.send_once(request.clone()).await;
            if reply.code != 429 || Instant::now() >= end {
                return reply;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn send_once(&self, request: PreparedRequest) -> ServerReply {
        let mut builder = Request::builder()
            .method(request.method)
            .uri(format!("https://{}{}", self.address, request.path));
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        let built = builder.body(full_body(request.body)).unwrap();
        let mut sender = self.sender.clone();
        let received = timeout(REPLY_TIMEOUT, async {
            let (parts, body) = sender.send_request(built).await?.into_parts();
            Ok::<_, hyper::Error>((parts, body.collect().await?.to_bytes()))
        });
        let (parts, body) = match received.await {
            Ok(Ok(received)) => received,
            Ok(Err(error)) => return ServerReply::failure(&error.to_string()),
            Err(_) => return ServerReply::failure("no end of the reply"),
        };
        let text =
            |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        ServerReply {
            code: parts.status.as_u16(),
            content_type: parts
                .headers
                .get("content-type")
                .map(text)
                .unwrap_or_default(),
            warnings: parts.headers.get_all("warning").iter().map(text).collect(),
            body: body.to_vec(),
        }
    }
}

impl ServerPair {
    /// The pair that concurrent tests share; it ends with the last test that holds it. `None`:
    /// a tool is missing, and the test is recorded as skipped.
    pub(crate) async fn shared() -> Option<Arc<Self>> {
        static PAIR: Mutex<Weak<ServerPair>> = Mutex::const_new(Weak::new());
        // On the test's own thread, whose name is in the record of skipped tests.
        let [program] = harness::tools(["apiextensions-apiserver"])?;
        let mut pair = PAIR.lock().await;
        if let Some(running) = pair.upgrade() {
            return Some(running);
        }
        let started = Arc::new(Self::start(&program).await?);
        *pair = Arc::downgrade(&started);
        Some(started)
    }

    async fn start(program: &Path) -> Option<Self> {
        let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
        let dir = TestDir::new();
        let data = dir.path().join("flotilla");
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &data.display().to_string(),
        ];
        let binary = env!("CARGO_BIN_EXE_flotilla");
        let (flotilla, address) =
            ServerProcess::start(binary, &arguments, &dir.path().join("flotilla.log"));
        let port = port::free_port();
        let arguments = reference_arguments(&data, &etcd.endpoints(), port);
        let mut reference = Daemon::start(program, arguments, &dir.path().join("reference.log"));
        let read = |name: &str| std::fs::read(data.join("pki").join(name)).unwrap();
        let (ca, certificate, key) = (read("ca.crt"), read("admin.crt"), read("admin.key"));
        let client = |address: &str| {
            HttpTestClient::new(address, "127.0.0.1", &ca, Some((&certificate, &key)))
        };
        let reference_client = client(&format!("127.0.0.1:{port}"));
        wait_ready(&mut reference, &reference_client).await;
        Some(Self {
            flotilla: client(&address),
            reference: reference_client,
            _reference_process: reference,
            _flotilla_process: flotilla,
            _etcd: etcd,
            _dir: dir,
        })
    }

    /// Connections to the reference and to Flotilla. They end with the runtime of the test.
    pub(crate) async fn connect(&self) -> [ServerConnection; 2] {
        [
            ServerConnection::open("Kubernetes", &self.reference).await,
            ServerConnection::open("Flotilla", &self.flotilla).await,
        ]
    }
}

async fn wait_ready(process: &mut Daemon, client: &HttpTestClient) {
    let end = Instant::now() + READY_TIMEOUT;
    loop {
        process.assert_running();
        if TcpStream::connect(&client.address).await.is_ok()
            && client.get("/readyz").await.code == 200
        {
            return;
        }
        let late = Instant::now() > end;
        assert!(
            !late,
            "the reference does not get ready:\n{}",
            process.log_tail()
        );
        sleep(POLL_INTERVAL).await;
    }
}

/// The kubeconfig and the certificates are Flotilla's: its administrator is the reference's.
fn reference_arguments(data: &Path, etcd: &str, port: u16) -> Vec<String> {
    let file = |name: &str| data.join(name).display().to_string();
    let kubeconfig = file("kubeconfig");
    let flags = [
        ("etcd-servers", etcd.to_owned()),
        ("secure-port", port.to_string()),
        ("bind-address", "127.0.0.1".to_owned()),
        ("kubeconfig", kubeconfig.clone()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig),
        ("authentication-skip-lookup", "true".to_owned()),
        ("client-ca-file", file("pki/ca.crt")),
        ("tls-cert-file", file("pki/server.crt")),
        ("tls-private-key-file", file("pki/server.key")),
    ];
    flags
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}
