//! An HTTPS server inside a test, with a self-signed certificate and a handler that the
//! test supplies.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::http_client::{TestHttpBody, full_body};

pub type TestResponseFuture = Pin<Box<dyn Future<Output = Response<TestHttpBody>> + Send>>;
pub type TestRequestHandler = Arc<dyn Fn(Request<Incoming>) -> TestResponseFuture + Send + Sync>;

/// A running server. Dropping it stops it.
pub struct FakeHttpsServer {
    pub address: SocketAddr,
    /// The CA bundle (PEM) for clients.
    pub ca_pem: String,
    task: JoinHandle<()>,
}

impl Drop for FakeHttpsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeHttpsServer {
    /// Serves `handler` over HTTP/1.1 and, when clients negotiate it, HTTP/2.
    pub async fn start(handler: TestRequestHandler) -> Self {
        Self::start_with_names(&["localhost", "127.0.0.1"], handler).await
    }

    /// The same with these names in its certificate.
    pub async fn start_with_names(names: &[&str], handler: TestRequestHandler) -> Self {
        Self::start_at("127.0.0.1:0", names, handler).await
    }

    /// The same at an address, or at all of this machine.
    pub async fn start_at(listen: &str, names: &[&str], handler: TestRequestHandler) -> Self {
        let (acceptor, ca) = self_signed_acceptor(names);
        let listener = TcpListener::bind(listen).await.unwrap();
        let mut address = listener.local_addr().unwrap();
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                tokio::spawn(async move {
                    tcp.set_nodelay(true).unwrap();
                    let Ok(stream) = acceptor.accept(tcp).await else {
                        return;
                    };
                    let second = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |request| {
                        let answer = handler(request);
                        async move { Ok::<_, std::convert::Infallible>(answer.await) }
                    });
                    let io = TokioIo::new(stream);
                    let _ = match second {
                        true => {
                            http2::Builder::new(TokioExecutor::new())
                                .serve_connection(io, service)
                                .await
                        }
                        false => {
                            http1::Builder::new()
                                .serve_connection(io, service)
                                .with_upgrades()
                                .await
                        }
                    };
                });
            }
        });
        Self {
            address,
            ca_pem: ca,
            task,
        }
    }
}

/// Accepts TLS with a self-signed certificate, whose PEM is returned.
pub(crate) fn self_signed_acceptor(names: &[&str]) -> (TlsAcceptor, String) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let ca = certified.cert.pem();
    let chain = vec![CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()];
    let key = certified.signing_key.serialize_pem();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(tls)), ca)
}

/// The bytes that the server sends after the client has closed its sending side.
pub const HALF_CLOSE_MESSAGE: &[u8] = b"sent after the client has closed its sending side";

/// Pseudo-random bytes, the same for the same seed.
pub fn pseudo_random_bytes(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Accepts an upgrade to any protocol. `/exec/echo` echoes all bytes and sends
/// [`HALF_CLOSE_MESSAGE`] after the client has closed its sending side; `/exec/brief` closes
/// its own sending side first and reads on; `/exec/none` answers 403. Bytes that
/// `/exec/brief` reads go to `received`.
pub fn upgrade_handler(received: tokio::sync::mpsc::Sender<Vec<u8>>) -> TestRequestHandler {
    Arc::new(move |mut request: Request<Incoming>| {
        let received = received.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let requested = request.headers().get("upgrade").cloned();
            let Some(protocol) = requested.filter(|_| !path.ends_with("/none")) else {
                let rejection = Response::builder().status(403).header("x-why", "none");
                return rejection.body(full_body("no upgrade")).unwrap();
            };
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
                if path.ends_with("/brief") {
                    to.write_all(HALF_CLOSE_MESSAGE).await.unwrap();
                    to.shutdown().await.unwrap();
                    let mut all = Vec::new();
                    let _ = from.read_to_end(&mut all).await;
                    received.send(all).await.unwrap();
                    return;
                }
                tokio::io::copy(&mut from, &mut to).await.unwrap();
                to.write_all(HALF_CLOSE_MESSAGE).await.unwrap();
                to.shutdown().await.unwrap();
            });
            Response::builder()
                .status(101)
                .header("connection", "Upgrade")
                .header("upgrade", protocol)
                .header("x-stream-protocol-version", "v4.channel.k8s.io")
                .body(full_body(""))
                .unwrap()
        })
    })
}
