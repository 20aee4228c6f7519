//! Starts a real etcd cluster on loopback, with or without TLS, with a [`Daemon`] for each
//! node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use auth::pki::Pki;
use jiff::Timestamp;

use crate::daemon::{TestDir, parent_bound_command};
use crate::{Daemon, port, tools};

const READY_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// `etcd-3.4`, whose progress notifications cannot be trusted.
pub const VERSION_3_4: &str = "3.4";
/// `etcd-3.5`, the newest release of that line.
pub const VERSION_3_5: &str = "3.5";

/// An etcd cluster. Dropping it kills its nodes.
///
/// ```ignore
/// let Some(mut etcd) = Etcd::start(etcd::VERSION_3_5, 3) else { return };
/// let leader = etcd.wait_for_leader();
/// etcd.nodes[leader].daemon.kill();
/// etcd.nodes[leader].daemon.restart();
/// etcd.wait_ready();
/// ```
pub struct EtcdCluster {
    etcdctl_program: PathBuf,
    pub nodes: Vec<EtcdNode>,
    tls: Option<EtcdClientCertificates>,
    dir: TestDir,
}

/// One node.
pub struct EtcdNode {
    pub daemon: Daemon,
    /// Its client address.
    pub address: SocketAddr,
}

/// The certificate files of a client of a cluster with TLS.
pub struct EtcdClientCertificates {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl EtcdCluster {
    /// Serves plain HTTP; returns when the cluster is ready. `None`: this machine has no such
    /// etcd, and the test is recorded as skipped.
    pub fn start(version: &str, nodes: usize) -> Option<Self> {
        Self::start_nodes(version, nodes, false, None)
    }

    /// One node with the data of a snapshot of `etcdctl snapshot save`; `more` are flags of
    /// `etcdctl snapshot restore`.
    pub fn restore(version: &str, snapshot: &Path, more: &[&str]) -> Option<Self> {
        Self::start_nodes(version, 1, false, Some((snapshot, more)))
    }

    /// Serves TLS and requires client certificates.
    pub fn start_tls(version: &str, nodes: usize) -> Option<Self> {
        Self::start_nodes(version, nodes, true, None)
    }

    fn start_nodes(
        version: &str,
        nodes: usize,
        tls: bool,
        snapshot: Option<(&Path, &[&str])>,
    ) -> Option<Self> {
        let [program, ctl] = tools([&format!("etcd-{version}"), &format!("etcdctl-{version}")])?;
        let dir = TestDir::new();
        let tls = tls.then(|| EtcdClientCertificates::generate(&dir.path().join("pki")));
        let ports: Vec<[u16; 2]> = (0..nodes)
            .map(|_| [port::free_port(), port::free_port()])
            .collect();
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(n, [_, peer])| format!("n{n}=http://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        if let Some((snapshot, more)) = snapshot {
            restore_snapshot(&ctl, snapshot, more, dir.path(), &peers);
        }
        let nodes = ports.iter().enumerate().map(|(n, [client, peer])| {
            let arguments = node_arguments(dir.path(), tls.as_ref(), n, *client, *peer, &peers);
            let log = dir.path().join(format!("n{n}.log"));
            EtcdNode {
                daemon: Daemon::start(&program, arguments, &log),
                address: SocketAddr::from(([127, 0, 0, 1], *client)),
            }
        });
        let nodes = nodes.collect();
        let mut etcd = Self {
            etcdctl_program: ctl,
            nodes,
            tls,
            dir,
        };
        etcd.wait_ready();
        Some(etcd)
    }

    /// The client URLs, as the flag `--etcd-servers` takes them.
    pub fn endpoints(&self) -> String {
        let urls = self.nodes.iter().map(|n| self.url(n));
        urls.collect::<Vec<_>>().join(",")
    }

    pub fn tls(&self) -> Option<&EtcdClientCertificates> {
        self.tls.as_ref()
    }

    /// The directory of data and logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn url(&self, node: &EtcdNode) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", node.address)
    }

    /// Waits until every running node answers a linearizable read.
    pub fn wait_ready(&mut self) {
        let end = Instant::now() + READY_TIMEOUT;
        for n in 0..self.nodes.len() {
            if !self.nodes[n].daemon.is_running() {
                continue;
            }
            let url = self.url(&self.nodes[n]);
            while self
                .try_etcdctl(&["--endpoints", &url, "get", "x"])
                .is_none()
            {
                let daemon = &mut self.nodes[n].daemon;
                daemon.assert_running();
                let late = Instant::now() > end;
                assert!(!late, "etcd does not get ready:\n{}", daemon.log_tail());
                crate::sleep_blocking(POLL_INTERVAL);
            }
        }
    }

    /// The index of the leader; waits for an election.
    pub fn wait_for_leader(&self) -> usize {
        let end = Instant::now() + READY_TIMEOUT;
        loop {
            let leads = |node: &EtcdNode| {
                let url = self.url(node);
                let output =
                    self.try_etcdctl(&["--endpoints", &url, "endpoint", "status", "-w", "fields"]);
                let output = output.unwrap_or_default();
                let field = |name: &str| {
                    let line = output
                        .lines()
                        .find(|l| l.starts_with(&format!("\"{name}\" :")));
                    line.and_then(|l| l.split(':').nth(1))
                        .map(|v| v.trim().to_owned())
                };
                field("Leader").is_some() && field("Leader") == field("MemberID")
            };
            let leader_index = self
                .nodes
                .iter()
                .position(|n| n.daemon.is_running() && leads(n));
            if let Some(leader) = leader_index {
                return leader;
            }
            assert!(Instant::now() < end, "no node of etcd leads");
            crate::sleep_blocking(POLL_INTERVAL);
        }
    }

    /// Runs `etcdctl ARGUMENTS` with all endpoints and returns its output.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let endpoints = self.endpoints();
        let all = [&["--endpoints", endpoints.as_str()], arguments].concat();
        let output = self.try_etcdctl(&all);
        output.unwrap_or_else(|| panic!("etcdctl {arguments:?} fails"))
    }

    fn try_etcdctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = self.etcdctl_command();
        command.args(["--command-timeout", "3s"]).args(arguments);
        let out = command.output().unwrap();
        let output = || String::from_utf8_lossy(&out.stdout).into_owned();
        out.status.success().then(output)
    }

    /// etcdctl with the environment that it needs for this cluster.
    pub(crate) fn etcdctl_command(&self) -> Command {
        let mut command = parent_bound_command(&self.etcdctl_program);
        if let Some(tls) = &self.tls {
            command.env("ETCDCTL_CACERT", &tls.ca);
            command.env("ETCDCTL_CERT", &tls.certificate);
            command.env("ETCDCTL_KEY", &tls.key);
        }
        command.env("ETCDCTL_API", "3").stderr(Stdio::null());
        command.stdin(Stdio::null());
        command
    }
}

/// A failed test keeps its logs, but not the data of etcd, which is large.
impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            node.daemon.kill();
            let _ = std::fs::remove_dir_all(self.dir.path().join(format!("n{n}")));
        }
    }
}

impl EtcdClientCertificates {
    /// Writes a certificate authority, a server and a client certificate to a directory.
    pub fn generate(dir: &Path) -> Self {
        let now = Timestamp::now();
        let pki = Pki::open(dir, &[], now).unwrap();
        let client = pki.sign_client_certificate("root", &[], now).unwrap();
        let files = Self {
            ca: dir.join("ca.crt"),
            certificate: dir.join("client.crt"),
            key: dir.join("client.key"),
        };
        std::fs::write(&files.certificate, client.certificate_pem).unwrap();
        std::fs::write(&files.key, client.key_pem).unwrap();
        files
    }
}

/// Restores the snapshot into the data directory of `n0`, the only node.
fn restore_snapshot(ctl: &Path, snapshot: &Path, more: &[&str], dir: &Path, peers: &str) {
    let peer = peers.strip_prefix("n0=").unwrap();
    let out = Command::new(ctl)
        .args(["snapshot", "restore"])
        .arg(snapshot)
        .args(["--name=n0", &format!("--initial-cluster={peers}")])
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--data-dir={}", dir.join("n0").display()))
        .args(more)
        .env("ETCDCTL_API", "3")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "etcdctl snapshot restore: {errors}");
}

fn node_arguments(
    dir: &Path,
    tls: Option<&EtcdClientCertificates>,
    node: usize,
    client: u16,
    peer: u16,
    peers: &str,
) -> Vec<String> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut flags = vec![
        ("name", format!("n{node}")),
        (
            "data-dir",
            dir.join(format!("n{node}")).display().to_string(),
        ),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer),
        ("initial-cluster", peers.to_owned()),
        ("logger", "zap".to_owned()),
        ("log-level", "warn".to_owned()),
    ];
    if let Some(tls) = tls {
        let beside = |name: &str| tls.ca.with_file_name(name).display().to_string();
        flags.push(("client-cert-auth", "true".to_owned()));
        flags.push(("trusted-ca-file", beside("ca.crt")));
        flags.push(("cert-file", beside("server.crt")));
        flags.push(("key-file", beside("server.key")));
    }
    let flags = flags.into_iter();
    flags
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}
