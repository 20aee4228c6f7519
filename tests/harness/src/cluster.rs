//! Starts a real Kubernetes control plane on loopback for a test: a kube-apiserver on a
//! given etcd, and a kube-controller-manager.
//!
//! The cluster issues kubeconfigs for any user and certificates of the front proxy. Its
//! files are in a directory that is removed when the cluster is dropped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use auth::pki::{CertKeyPair, Pki, kubeconfig};
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::{Api, RemoteApi, ShutdownToken, TaskGroup};
use jiff::Timestamp;
use rcgen::KeyPair;

use crate::daemon::TestDir;
use crate::{Daemon, EtcdCluster, port, tools};

/// After a restart, a kube-apiserver of 1.20, which the tests have by default, merges the OpenAPI of each APIService before it is
/// ready, which takes minutes on a machine that is busy.
const READY_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The controllers of a host cluster that stores templates and runs no workloads.
pub const HOST_CONTROLLERS: &str = "namespace,garbagecollector,serviceaccount-token,ttl-after-finished,\
    bootstrapsigner,tokencleaner,csrcleaner,csrsigning,clusterrole-aggregation";
/// All controllers that are on by default, except the node lifecycle controller, which
/// taints nodes without heartbeats: hollow nodes send none.
pub const DEFAULT_CONTROLLERS: &str = "*,-nodelifecycle";

/// The common name of the aggregator's client certificate.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// The parts to start.
pub struct KubernetesClusterOptions<'a> {
    /// The prefix of its keys in etcd; each cluster on one etcd needs its own.
    pub name: &'a str,
    /// [`HOST_CONTROLLERS`], [`DEFAULT_CONTROLLERS`], or names with commas; empty: no
    /// controller manager.
    pub controllers: &'a str,
    /// Further flags of the kube-apiserver.
    pub flags: &'a [String],
}

/// A running cluster. Dropping it kills its programs.
///
/// ```ignore
/// let Some(etcd) = Etcd::start(etcd::VERSION_3_5, 1) else { return };
/// let options = Options { name: "host", controllers: cluster::HOST_CONTROLLERS, flags: &[] };
/// let Some(mut host) = KubernetesCluster::start(&options, &etcd) else { return };
/// let api = host.api();                                     // in system:masters
/// let jane = host.user_kubeconfig("jane", &["developers"]);
/// host.apiserver.kill();
/// host.apiserver.restart();
/// host.wait_ready();
/// ```
pub struct KubernetesCluster {
    pub apiserver: Daemon,
    pub controller_manager: Option<Daemon>,
    /// `https://127.0.0.1:PORT`, the same after a restart.
    pub server: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    pki: Pki,
    front_proxy_pki: Pki,
    dir: TestDir,
}

impl KubernetesCluster {
    /// Returns when the kube-apiserver is ready. `None`: the programs are not available on
    /// this machine, and the test is recorded as skipped.
    pub fn start(options: &KubernetesClusterOptions<'_>, etcd: &EtcdCluster) -> Option<Self> {
        let [apiserver, manager] = tools(["kube-apiserver", "kube-controller-manager"])?;
        let dir = TestDir::new();
        let now = Timestamp::now();
        let pki = Pki::open(&dir.path().join("pki"), &[], now).unwrap();
        let front = Pki::open(&dir.path().join("front"), &[], now).unwrap();
        let port = port::free_port();
        let server = format!("https://127.0.0.1:{port}");
        let files = KubernetesClusterFiles { dir: dir.path() };
        files.write(&pki, &front, &server);
        let mut flags = apiserver_flags(&files, options.name, port, etcd);
        flags.extend_from_slice(options.flags);
        let mut cluster = Self {
            apiserver: Daemon::start(&apiserver, flags, &dir.path().join("apiserver.log")),
            controller_manager: None,
            kubeconfig: files.path("admin.kubeconfig").into(),
            server,
            pki,
            front_proxy_pki: front,
            dir,
        };
        cluster.wait_ready();
        if !options.controllers.is_empty() {
            let files = KubernetesClusterFiles {
                dir: cluster.dir.path(),
            };
            let flags = manager_flags(&files, options.controllers, has_insecure_port(&manager));
            let log = cluster.dir.path().join("manager.log");
            cluster.controller_manager = Some(Daemon::start(&manager, flags, &log));
        }
        Some(cluster)
    }

    /// Waits until `/readyz` of the kube-apiserver succeeds.
    pub fn wait_ready(&mut self) {
        let end = Instant::now() + READY_TIMEOUT;
        loop {
            self.apiserver.assert_running();
            let Err(e) = readyz(&self.kubeconfig) else {
                return;
            };
            let passed = |line: &&str| line.starts_with("[+]");
            let failed: Vec<&str> = e.lines().filter(|line| !passed(line)).collect();
            let message = || failed.join("\n") + "\n" + &self.apiserver.log_tail();
            assert!(Instant::now() < end, "kube-apiserver: {}", message());
            crate::sleep_blocking(POLL_INTERVAL);
        }
    }

    /// The administrator's connection. Must be called where tokio runs.
    pub fn api(&self) -> std::sync::Arc<dyn Api> {
        connect(&self.kubeconfig)
    }

    /// Writes a kubeconfig with a client certificate of this user.
    pub fn user_kubeconfig(&self, user: &str, groups: &[&str]) -> PathBuf {
        let identity = self.client_certificate(user, groups);
        let text = kubeconfig(&self.server, &self.pki.ca_pem, user, &identity);
        let path = self
            .dir
            .path()
            .join(format!("user-{}", user.replace('/', "-")));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Issues a client certificate of this cluster's certificate authority.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> CertKeyPair {
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        self.pki
            .sign_client_certificate(user, &groups, Timestamp::now())
            .unwrap()
    }

    /// Issues a certificate like the one that the aggregator presents to extension API
    /// servers. With the name [`FRONT_PROXY_NAME`] its holder may set the user by request
    /// headers; with any other name it may not.
    pub fn front_proxy_certificate(&self, name: &str) -> CertKeyPair {
        self.front_proxy_pki
            .sign_client_certificate(name, &[], Timestamp::now())
            .unwrap()
    }

    /// The certificate authority of the serving and client certificates.
    pub fn ca_pem(&self) -> &str {
        &self.pki.ca_pem
    }

    /// The directory of logs, keys and kubeconfigs; tests may add files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Connects by a kubeconfig. Must be called where tokio runs.
pub fn connect(kubeconfig: &Path) -> std::sync::Arc<dyn Api> {
    std::sync::Arc::new(connect_remote(kubeconfig))
}

/// As [`connect`], with the calls that only a remote server has.
pub fn connect_remote(kubeconfig: &Path) -> RemoteApi {
    let config = KubeconfigLoadingRules::from_file(kubeconfig)
        .load()
        .unwrap();
    RemoteApi::new(config, &TaskGroup::new(ShutdownToken::new())).unwrap()
}

/// Requests `/readyz` on a separate thread, because the caller may run in a runtime.
fn readyz(kubeconfig: &Path) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    let kubeconfig = kubeconfig.to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let result = runtime.unwrap().block_on(async {
            let api = connect(&kubeconfig);
            let request = tokio::time::timeout(Duration::from_secs(5), api.get_raw("/readyz"));
            request
                .await
                .map_err(|_| "no answer".to_owned())?
                .map_err(|e| e.to_string())
        });
        let _ = sender.send(result.map(|_| ()));
    });
    receiver
        .recv()
        .unwrap_or_else(|_| Err("the request thread panicked".to_owned()))
}

/// The files in a cluster's directory.
struct KubernetesClusterFiles<'a> {
    dir: &'a Path,
}

impl KubernetesClusterFiles<'_> {
    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn write(&self, pki: &Pki, front: &Pki, server: &str) {
        let now = Timestamp::now();
        let proxy = front
            .sign_client_certificate(FRONT_PROXY_NAME, &[], now)
            .unwrap();
        let kubelet = pki
            .sign_client_certificate("kube-apiserver-kubelet-client", &[], now)
            .unwrap();
        let masters = ["system:masters".to_owned()];
        let manager = pki
            .sign_client_certificate("system:kube-controller-manager", &masters, now)
            .unwrap();
        let manager = kubeconfig(server, &pki.ca_pem, "manager", &manager);
        let tokens = KeyPair::from_pem(&pki.token_key_pem).unwrap();
        for (name, text) in [
            ("proxy.crt", &proxy.certificate_pem),
            ("proxy.key", &proxy.key_pem),
            ("kubelet.crt", &kubelet.certificate_pem),
            ("kubelet.key", &kubelet.key_pem),
            ("tokens.pub", &tokens.public_key_pem()),
            ("manager.kubeconfig", &manager),
            (
                "admin.kubeconfig",
                &pki.admin_kubeconfig(server, &pki.ca_pem),
            ),
        ] {
            std::fs::write(self.dir.join(name), text).unwrap();
        }
    }
}

fn format_flags(pairs: Vec<(&str, String)>) -> Vec<String> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

fn apiserver_flags(
    files: &KubernetesClusterFiles<'_>,
    name: &str,
    port: u16,
    etcd: &EtcdCluster,
) -> Vec<String> {
    let mut all = vec![
        ("etcd-servers", etcd.endpoints()),
        ("etcd-prefix", format!("/{name}")),
        ("bind-address", "127.0.0.1".into()),
        ("advertise-address", "127.0.0.1".into()),
        ("secure-port", port.to_string()),
        // Nothing in this cluster uses the `kubernetes` Service.
        ("endpoint-reconciler-type", "none".into()),
        ("service-cluster-ip-range", "10.96.0.0/16".into()),
        ("tls-cert-file", files.path("pki/server.crt")),
        ("tls-private-key-file", files.path("pki/server.key")),
        ("client-ca-file", files.path("pki/ca.crt")),
        ("authorization-mode", "Node,RBAC".into()),
        (
            "service-account-issuer",
            "https://kubernetes.default.svc".into(),
        ),
        ("service-account-key-file", files.path("tokens.pub")),
        ("service-account-signing-key-file", files.path("pki/sa.key")),
        ("requestheader-client-ca-file", files.path("front/ca.crt")),
        ("requestheader-allowed-names", FRONT_PROXY_NAME.into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        (
            "requestheader-extra-headers-prefix",
            "X-Remote-Extra-".into(),
        ),
        ("proxy-client-cert-file", files.path("proxy.crt")),
        ("proxy-client-key-file", files.path("proxy.key")),
        ("enable-aggregator-routing", "false".into()),
        ("kubelet-client-certificate", files.path("kubelet.crt")),
        ("kubelet-client-key", files.path("kubelet.key")),
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("allow-privileged", "true".into()),
        ("enable-bootstrap-token-auth", "true".into()),
        ("profiling", "false".into()),
    ];
    if let Some(tls) = etcd.tls() {
        let path = |p: &PathBuf| p.display().to_string();
        all.push(("etcd-cafile", path(&tls.ca)));
        all.push(("etcd-certfile", path(&tls.certificate)));
        all.push(("etcd-keyfile", path(&tls.key)));
    }
    format_flags(all)
}

fn manager_flags(
    files: &KubernetesClusterFiles<'_>,
    controllers: &str,
    insecure_port: bool,
) -> Vec<String> {
    let mut all = vec![
        ("kubeconfig", files.path("manager.kubeconfig")),
        ("controllers", controllers.to_owned()),
        ("leader-elect", "false".into()),
        ("bind-address", "127.0.0.1".into()),
        ("secure-port", port::free_port().to_string()),
        ("cert-dir", files.path("manager")),
        ("root-ca-file", files.path("pki/ca.crt")),
        ("service-account-private-key-file", files.path("pki/sa.key")),
        ("cluster-signing-cert-file", files.path("pki/ca.crt")),
        ("cluster-signing-key-file", files.path("pki/ca.key")),
        ("kube-api-qps", "200".into()),
        ("kube-api-burst", "400".into()),
        ("profiling", "false".into()),
    ];
    if insecure_port {
        all.push(("port", "0".into()));
    }
    format_flags(all)
}

/// Whether the controller manager has the flag `--port`: old versions open a port
/// without TLS unless it is 0, newer ones have removed the flag.
fn has_insecure_port(manager: &Path) -> bool {
    let help = Command::new(manager).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    help.lines().any(|l| l.trim_start().starts_with("--port "))
}
