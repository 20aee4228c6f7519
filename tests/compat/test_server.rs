//! A control plane, or a simulated cluster, in a process of its own.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::ServerProcess;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use harness::http_client::{CLUSTERS_PATH, HttpTestClient, HttpTestResponse};
use harness::https_server::FakeHttpsServer;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// A running server with clients for it. Dropping it ends the process.
pub(crate) struct CompatTestServer {
    _process: ServerProcess,
    pub(crate) admin: HttpTestClient,
    pub(crate) anonymous: HttpTestClient,
    dir: TempDir,
}

impl CompatTestServer {
    pub(crate) fn start() -> Self {
        Self::start_command(&["serve", "--data-dir"])
    }

    /// Starts a simulated cluster.
    pub(crate) fn start_member() -> Self {
        Self::start_member_with(&[])
    }

    /// As [`Self::start_member`], with further flags.
    pub(crate) fn start_member_with(flags: &[&str]) -> Self {
        Self::start_command(&[&["member", "--nodes", "1"], flags, &["--dir"]].concat())
    }

    fn start_command(command: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data").display().to_string();
        let arguments = [command, &[&data, "--listen", "127.0.0.1:0"]].concat();
        let (process, address) = ServerProcess::start(BINARY, &arguments, &dir.path().join("log"));
        let read = |name: &str| std::fs::read(dir.path().join("data/pki").join(name)).unwrap();
        let ca = read("ca.crt");
        let identity = (read("admin.crt"), read("admin.key"));
        Self {
            _process: process,
            admin: HttpTestClient::new(
                &address,
                "127.0.0.1",
                &ca,
                Some((&identity.0, &identity.1)),
            ),
            anonymous: HttpTestClient::new(&address, "127.0.0.1", &ca, None),
            dir,
        }
    }

    /// The control plane that concurrent tests share. It ends with the last test that holds it; a
    /// static would never be dropped.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<CompatTestServer>> = Mutex::new(Weak::new());
        let started = tokio::task::spawn_blocking(|| {
            let mut shared = SHARED.lock();
            if let Some(running) = shared.upgrade() {
                return running;
            }
            let started = Arc::new(Self::start());
            *shared = Arc::downgrade(&started);
            started
        });
        started.await.unwrap()
    }

    /// A client with the certificate and key of an identity, both PEM.
    pub(crate) fn client(&self, certificate: &[u8], key: &[u8]) -> HttpTestClient {
        let ca = std::fs::read(self.dir.path().join("data/pki/ca.crt")).unwrap();
        let identity = Some((certificate, key));
        HttpTestClient::new(&self.admin.address, "127.0.0.1", &ca, identity)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("data/kubeconfig")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Registers a server of the test as a cluster, as `join` does. Fields in `spec` override the
    /// fields of the Cluster.
    pub(crate) async fn register_cluster(&self, name: &str, peer: &FakeHttpsServer, spec: Value) {
        let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
        let ca = STANDARD.encode(&peer.ca_pem);
        let token = |t: &str| STANDARD.encode(t);
        for secret in [
            secret(name, json!({"token": token("own"), "caBundle": ca})),
            secret(
                &format!("{name}-impersonator"),
                json!({"token": token("impersonator")}),
            ),
        ] {
            assert_created(&self.admin.post(secrets, &secret).await);
        }
        let reference = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
        let mut cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name},
            // With syncMode Pull only the proxy connects to it.
            "spec": {"syncMode": "Pull", "id": name, "apiEndpoint": format!("https://{}/base/", peer.address),
                     "secretRef": reference(name),
                     "impersonatorSecretRef": reference(&format!("{name}-impersonator"))},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            cluster["spec"][field] = value.clone();
        }
        assert_created(&self.admin.post(CLUSTERS_PATH, &cluster).await);
    }

    /// Registers a cluster that accepts requests and never answers.
    pub(crate) async fn register_silent_cluster(&self, name: &str) -> FakeHttpsServer {
        let server = FakeHttpsServer::start(Arc::new(|_| Box::pin(std::future::pending()))).await;
        self.register_cluster(name, &server, json!({})).await;
        server
    }
}

fn assert_created(reply: &HttpTestResponse) {
    let text = String::from_utf8_lossy(&reply.body);
    assert_eq!(reply.code, 201, "{text}");
}
