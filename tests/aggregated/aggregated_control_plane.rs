//! Flotilla in aggregated mode behind a real kube-apiserver.
//!
//! The kube-apiserver (the host) reaches Flotilla by a Service of type ExternalName that
//! resolves to loopback.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::api_server_client::find_condition;
use harness::cluster::{HOST_CONTROLLERS, KubernetesClusterOptions};
use harness::daemon::TestDir;
use harness::objects::{API_SERVICES, SERVICES};
use harness::{ApiServerClient, EtcdCluster, KubernetesCluster, ServerProcess, etcd, port};
use karmada_api::is_karmada_group;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::aggregated::direct_client::DirectClient;
use crate::aggregated::real_clusters::{BINARY, CLUSTER_TOOLS, path_string};

/// The namespace of Flotilla in the host.
pub(crate) const NAMESPACE: &str = "flotilla-system";
/// The Service that the host routes to.
pub(crate) const SERVICE: &str = "flotilla";

/// Each of them, with its members, keeps a processor busy; more at a time only wait for each other.
static RUNNING: Semaphore = Semaphore::const_new(2);

const AVAILABLE_TIMEOUT: Duration = Duration::from_secs(180);
const AUDIT_LOG: &str = "audit.log";

/// Writes an audit policy and returns the kube-apiserver's flags for it: the audit log has one
/// event for each `get` of an object of group work.karmada.io.
fn audit_flags(dir: &Path) -> Vec<String> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "verbs": ["get"], "resources": [{"group": "work.karmada.io"}]},
            {"level": "None"},
        ],
    });
    let file = dir.join("audit-policy.yaml");
    std::fs::write(&file, policy.to_string()).unwrap();
    vec![
        format!("--audit-policy-file={}", path_string(&file)),
        format!("--audit-log-path={}", path_string(&dir.join(AUDIT_LOG))),
    ]
}

/// A host, and Flotilla in aggregated mode behind it.
pub(crate) struct AggregatedControlPlane {
    pub(crate) host: KubernetesCluster,
    /// A client with the rights of an administrator, through the host.
    pub(crate) client: ApiServerClient,
    /// `None` after a kill.
    pub(crate) process: Option<ServerProcess>,
    pub(crate) port: u16,
    arguments: Vec<String>,
    dir: TestDir,
    pub(crate) etcd: EtcdCluster,
    /// The last field: what runs is stopped before the next control plane starts.
    _running: SemaphorePermit<'static>,
}

impl AggregatedControlPlane {
    /// Returns `None` if a tool is missing, which `harness::tools` has recorded.
    pub(crate) async fn start() -> Option<Self> {
        let mut control_plane = Self::prepare().await?;
        control_plane.start_flotilla();
        Some(control_plane)
    }

    /// Like [`Self::start`], with Flotilla's own objects in the host's etcd.
    pub(crate) async fn start_on_etcd() -> Option<Self> {
        let mut control_plane = Self::prepare().await?;
        let servers = ["--etcd-servers".to_owned(), control_plane.etcd.endpoints()];
        control_plane.arguments.extend(servers);
        control_plane.start_flotilla();
        Some(control_plane)
    }

    /// Starts the host, but not Flotilla.
    pub(crate) async fn prepare() -> Option<Self> {
        harness::tools(CLUSTER_TOOLS)?;
        let running = RUNNING.acquire().await.unwrap();
        let dir = TestDir::new();
        let flags = audit_flags(dir.path());
        let started = tokio::task::spawn_blocking(move || {
            let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
            let options = KubernetesClusterOptions {
                name: "host",
                controllers: HOST_CONTROLLERS,
                flags: &flags,
            };
            Some((KubernetesCluster::start(&options, &etcd)?, etcd))
        });
        let (host, etcd) = started.await.unwrap()?;
        let control = ApiServerClient::connect("host", &host.kubeconfig);
        control.create_namespace(NAMESPACE).await;
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        assert_eq!(harness::objects::gvr(&service), &SERVICES);
        control.create(service).await;
        let port = port::free_port();
        let arguments = [
            "serve",
            "-v",
            "1",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data-dir",
            &path_string(dir.path()),
            "--kubeconfig",
            &path_string(&host.kubeconfig),
            "--service-port",
            &port.to_string(),
        ];
        Some(Self {
            host,
            client: control,
            process: None,
            port,
            arguments: arguments.map(str::to_owned).to_vec(),
            dir,
            etcd,
            _running: running,
        })
    }

    /// The release of the host, as `v1.36.0`.
    pub(crate) async fn version(&self) -> String {
        let body = self.client.api.get_raw("/version").await.unwrap();
        let version: Value = machinery::json::from_slice(&body).unwrap();
        version["gitVersion"].as_str().unwrap().to_owned()
    }

    /// Reads the audit events of the host: one for each response to a `get` in group
    /// work.karmada.io.
    pub(crate) fn audit_events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.path().join(AUDIT_LOG));
        let text = text.unwrap_or_default();
        // The last line may be incomplete.
        let lines = text.lines().map(machinery::json::from_str);
        lines.filter_map(Result::ok).collect()
    }

    /// Starts Flotilla and waits until it is ready.
    pub(crate) fn start_flotilla(&mut self) {
        self.start_flotilla_with(&[]);
    }

    /// Like [`Self::start_flotilla`], with further flags.
    pub(crate) fn start_flotilla_with(&mut self, flags: &[&str]) {
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        arguments.extend(flags);
        let log = self.dir.path().join("flotilla.log");
        self.process = Some(ServerProcess::start(BINARY, &arguments, &log).0);
    }

    /// Starts Flotilla, which must exit with code 1 before it is ready; returns its output.
    pub(crate) async fn expect_start_failure(&self) -> String {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let ran = harness::process::run_to_exit(BINARY, &arguments);
        let (code, output) = tokio::time::timeout(AVAILABLE_TIMEOUT, ran).await.unwrap();
        assert_eq!(code, Some(1), "{output}");
        output
    }

    /// Removes the store of Flotilla, which does not run.
    pub(crate) fn clear_store(&self) {
        std::fs::remove_dir_all(self.dir.path().join("store")).unwrap();
    }

    /// Kills Flotilla with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Stops Flotilla with SIGTERM; it must exit successfully.
    pub(crate) fn stop(&mut self) {
        self.process.take().unwrap().stop();
    }

    /// Lists the APIServices of Flotilla's groups.
    pub(crate) async fn api_services(&self) -> Vec<Value> {
        let mut all = self.client.list(&API_SERVICES, "").await;
        all.retain(|s| s["spec"]["group"].as_str().is_some_and(is_karmada_group));
        all
    }

    /// Waits until every APIService is Available and the host routes requests to Flotilla.
    ///
    /// Returns how long the APIServices took to become Available.
    pub(crate) async fn wait_until_available(&self) -> Duration {
        let start = Instant::now();
        let mut elapsed = None;
        loop {
            let all = self.api_services().await;
            let missing: Vec<&Value> = all
                .iter()
                .filter(|s| find_condition(s, "Available")["status"] != "True")
                .collect();
            if !all.is_empty() && missing.is_empty() {
                let elapsed = *elapsed.get_or_insert_with(|| start.elapsed());
                if self.is_routed(&all).await {
                    return elapsed;
                }
            }
            assert!(
                start.elapsed() < AVAILABLE_TIMEOUT,
                "not available: {missing:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether the host routes requests for each group. Its proxy handler learns of a group
    /// independently of the Available condition.
    async fn is_routed(&self, all: &[Value]) -> bool {
        for service in all {
            let spec = &service["spec"];
            let (group, version) = (spec["group"].as_str(), spec["version"].as_str());
            let path = format!("/apis/{}/{}", group.unwrap(), version.unwrap());
            if self.client.api.get_raw(&path).await.is_err() {
                return false;
            }
        }
        true
    }

    /// The CA bundle of the APIServices.
    pub(crate) async fn ca_bundle(&self) -> String {
        use base64::Engine;
        let all = self.api_services().await;
        let text = all[0]["spec"]["caBundle"].as_str().unwrap();
        let pem = base64::engine::general_purpose::STANDARD.decode(text);
        String::from_utf8(pem.unwrap()).unwrap()
    }

    /// A client that connects to Flotilla directly, not through the host.
    pub(crate) async fn direct_client(&self) -> DirectClient {
        DirectClient::new(self.port, &self.ca_bundle().await)
    }
}
