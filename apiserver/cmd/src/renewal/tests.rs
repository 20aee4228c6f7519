//! Tests of certificate renewal: a standalone server over many years of a fake clock.

use std::path::Path;

use auth::pki::CertKeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use machinery::time::FakeClock;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::standalone::{StandaloneServer, StandaloneServerOptions};
use crate::storage_engine::StorageBackendConfig;

const NAMESPACES: &str = "/api/v1/namespaces";

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

/// The time of TLS clients, which is the server's fake clock.
#[derive(Clone)]
struct FakeTimeProvider(Arc<FakeClock>);

impl std::fmt::Debug for FakeTimeProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Time")
    }
}

impl TimeProvider for FakeTimeProvider {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.now().as_second().unsigned_abs();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The credentials of a kubeconfig.
struct KubeconfigCredentials {
    ca: String,
    identity: CertKeyPair,
}

impl KubeconfigCredentials {
    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap();
        let config: Value = serde_saphyr::from_str(&text).unwrap();
        let decode = |value: &Value| {
            let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let user = &config["users"][0]["user"];
        Self {
            ca: decode(&config["clusters"][0]["cluster"]["certificate-authority-data"]),
            identity: CertKeyPair {
                certificate_pem: decode(&user["client-certificate-data"]),
                key_pem: decode(&user["client-key-data"]),
            },
        }
    }
}

/// A connection to the server.
struct TlsTestConnection(SendRequest<Empty<Bytes>>);

impl TlsTestConnection {
    /// Fails where the client does not trust the server.
    async fn open(
        server: &StandaloneServer,
        time: &FakeTimeProvider,
        ca: &str,
        identity: Option<&CertKeyPair>,
    ) -> std::io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_details(provider, Arc::new(time.clone()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes());
                let chain = chain.map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let stream = TcpStream::connect(server.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let (sender, connection) = handshake(TokioIo::new(stream.await?)).await.unwrap();
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// The status of a GET.
    async fn get(&mut self, path: &str) -> u16 {
        self.0.ready().await.unwrap();
        let request = http::Request::get(path).header("host", "localhost");
        let request = request.body(Empty::new()).unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        status
    }
}

async fn start(dir: &Path, clock: &Arc<FakeClock>) -> StandaloneServer {
    let listen = "127.0.0.1:0".parse().unwrap();
    let backend = StorageBackendConfig::Embedded { sync: false };
    let setup = StandaloneServerOptions {
        federation: false,
        ..StandaloneServerOptions::new(dir, listen, backend)
    };
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Box::pin(StandaloneServer::start_with_clock(setup, clock))
        .await
        .unwrap()
}

/// Renews certificates over twelve years, past the end of the first authority.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_while_the_server_runs() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::new(Timestamp::now()));
    let (time, begin) = (FakeTimeProvider(Arc::clone(&clock)), clock.now());
    let server = start(dir.path(), &clock).await;
    let first = KubeconfigCredentials::read(&server.kubeconfig);
    let mut open = TlsTestConnection::open(&server, &time, &first.ca, None).await;
    let open = open.as_mut().unwrap();
    let root_ca = server.service_account_options().root_ca;
    let (mut serving, mut administrators) = (Vec::new(), Vec::new());
    while clock.now() < begin + days(12 * 365) {
        clock.advance(days(10));
        // A client can use the kubeconfig of before the renewal and that of after it.
        let before = KubeconfigCredentials::read(&server.kubeconfig);
        server.renewal.renew().await.unwrap();
        let now = KubeconfigCredentials::read(&server.kubeconfig);
        for config in [&before, &now] {
            let connected =
                TlsTestConnection::open(&server, &time, &config.ca, Some(&config.identity));
            let at = clock.now();
            let mut connected = connected
                .await
                .unwrap_or_else(|reason| panic!("{at}: {reason}"));
            assert_eq!(connected.get(NAMESPACES).await, 200, "{at}");
        }
        assert_eq!(open.get("/livez").await, 200, "the open connection");
        assert_eq!(*root_ca.borrow(), now.ca, "the root CA of service accounts");
        let certificate = std::fs::read_to_string(dir.path().join("pki/server.crt")).unwrap();
        serving.push(certificate);
        administrators.push(now.identity.certificate_pem);
        if clock.now() < begin + days(3649) {
            let old = TlsTestConnection::open(&server, &time, &first.ca, None).await;
            assert!(
                old.is_ok(),
                "the first authority is trusted: {}",
                clock.now()
            );
        }
    }
    for mut all in [serving, administrators] {
        all.dedup();
        assert!((12..15).contains(&all.len()), "renewed once a year");
    }
    // An expired certificate is refused.
    let config = KubeconfigCredentials::read(&server.kubeconfig);
    let expired = TlsTestConnection::open(&server, &time, &config.ca, Some(&first.identity)).await;
    assert_eq!(expired.unwrap().get(NAMESPACES).await, 401);
    server.stop().await;
}

/// A certificate of the first authority is valid until it expires, although the authority
/// was renewed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_an_earlier_authority_stay_valid() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::new(Timestamp::now()));
    let time = FakeTimeProvider(Arc::clone(&clock));
    let server = start(dir.path(), &clock).await;
    clock.advance(days(3650 - 365 - 5));
    server.renewal.renew().await.unwrap();
    let before = KubeconfigCredentials::read(&server.kubeconfig);
    let pki = Pki::open(&dir.path().join("pki"), &["127.0.0.1".into()], clock.now()).unwrap();
    let user = pki.sign_client_certificate("jane", &["system:masters".into()], clock.now());
    let user = user.unwrap();
    clock.advance(days(10));
    server.renewal.renew().await.unwrap();
    let after = KubeconfigCredentials::read(&server.kubeconfig);
    assert_ne!(before.ca, after.ca, "the authority was renewed");
    assert!(
        after.ca.contains(&before.ca),
        "and the old one stays trusted"
    );
    clock.advance(days(300));
    server.renewal.renew().await.unwrap();
    for ca in [&before.ca, &after.ca] {
        let connection = TlsTestConnection::open(&server, &time, ca, Some(&user)).await;
        assert_eq!(connection.unwrap().get(NAMESPACES).await, 200);
    }
    server.stop().await;
}

/// The task renews certificates periodically.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_runs_by_itself_and_survives_a_broken_file() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::new(Timestamp::now()));
    let server = start(dir.path(), &clock).await;
    let file = dir.path().join("pki/server.crt");
    let good = std::fs::read_to_string(&file).unwrap();
    let first = std::fs::read_to_string(&server.kubeconfig).unwrap();
    std::fs::write(&file, "no certificate").unwrap();
    clock.advance(days(340));
    server.renewal.renew().await.unwrap_err();
    let in_use = || {
        let in_use = server.renewal.in_use.lock();
        let certificates = in_use.certificates.as_ref().unwrap();
        certificates.serving.certificate_pem.clone()
    };
    assert_eq!(in_use(), good, "the old one stays");
    std::fs::write(&file, &good).unwrap();
    let tasks = TaskGroup::new(client::ShutdownToken::new());
    let period = Duration::from_millis(20);
    server.renewal.run(period, &Arc::default(), &tasks);
    let renewed = async {
        while std::fs::read_to_string(&server.kubeconfig).unwrap() == first {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), renewed)
        .await
        .unwrap();
    assert_ne!(in_use(), good);
    tasks.stop().await;
    server.stop().await;
}
