//! A control plane, or a simulated cluster, in a process of its own.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::Process;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use harness::peer::Peer;
use harness::target::{CLUSTERS, Reply, Target};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");

/// A running server with clients for it. Dropping it ends the process.
pub(crate) struct Plane {
    _process: Process,
    pub(crate) admin: Target,
    pub(crate) nobody: Target,
    dir: TempDir,
}

impl Plane {
    pub(crate) fn start() -> Self {
        Self::of(&["serve", "--data-dir"])
    }

    /// Starts a simulated cluster.
    pub(crate) fn member() -> Self {
        Self::of(&["member", "--nodes", "1", "--dir"])
    }

    fn of(command: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data").display().to_string();
        let arguments = [command, &[&data, "--listen", "127.0.0.1:0"]].concat();
        let (process, address) = Process::start(BINARY, &arguments, &dir.path().join("log"));
        let read = |name: &str| std::fs::read(dir.path().join("data/pki").join(name)).unwrap();
        let ca = read("ca.crt");
        let identity = (read("admin.crt"), read("admin.key"));
        Self {
            _process: process,
            admin: Target::new(&address, "127.0.0.1", &ca, Some((&identity.0, &identity.1))),
            nobody: Target::new(&address, "127.0.0.1", &ca, None),
            dir,
        }
    }

    /// The control plane that concurrent tests share. It ends with the last test that holds it; a
    /// static would never be dropped.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Plane>> = Mutex::new(Weak::new());
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

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("data/kubeconfig")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Registers a server of the test as a cluster, as `join` does. Fields in `spec` override those
    /// of the Cluster.
    pub(crate) async fn register(&self, name: &str, peer: &Peer, spec: Value) {
        let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
        let ca = STANDARD.encode(&peer.ca);
        let token = |t: &str| STANDARD.encode(t);
        for secret in [
            secret(name, json!({"token": token("own"), "caBundle": ca})),
            secret(
                &format!("{name}-impersonator"),
                json!({"token": token("impersonator")}),
            ),
        ] {
            created(&self.admin.post(secrets, &secret).await);
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
        created(&self.admin.post(CLUSTERS, &cluster).await);
    }
}

fn created(reply: &Reply) {
    let text = String::from_utf8_lossy(&reply.body);
    assert_eq!(reply.code, 201, "{text}");
}
