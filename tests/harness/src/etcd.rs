//! Real etcd, one node or several, on loopback.
//!
//! Enters: a version, how many nodes, whether with TLS. Leaves: endpoints, and a
//! [`Daemon`] for each node. Its data is in a directory that goes with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use auth::pki::Pki;
use jiff::Timestamp;

use crate::daemon::Kept;
use crate::{Daemon, port, tools};

const READY: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// `etcd-3.4`: no progress that can be trusted.
pub const OLD: &str = "3.4";
/// `etcd-3.5`: the newest of that line.
pub const NEW: &str = "3.5";

/// A cluster of etcd. Dropping it kills its nodes.
///
/// ```ignore
/// let Some(mut etcd) = Etcd::start(etcd::NEW, 3) else { return };
/// let leader = etcd.leader();
/// etcd.nodes[leader].daemon.kill();
/// etcd.nodes[leader].daemon.again();
/// etcd.wait();
/// ```
pub struct Etcd {
    ctl: PathBuf,
    pub nodes: Vec<Node>,
    tls: Option<Tls>,
    dir: Kept,
}

/// One node.
pub struct Node {
    pub daemon: Daemon,
    /// Where clients reach it.
    pub address: SocketAddr,
}

/// Files by which clients reach a cluster with TLS.
pub struct Tls {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Etcd {
    /// Plain HTTP; ready when this returns. `None`: there is no such etcd here,
    /// which was said.
    pub fn start(version: &str, nodes: usize) -> Option<Self> {
        Self::begin(version, nodes, false, None)
    }

    /// One node with the data of a snapshot that `etcdctl snapshot save` made.
    pub fn restore(version: &str, snapshot: &Path) -> Option<Self> {
        Self::begin(version, 1, false, Some(snapshot))
    }

    /// Certificates are asked of clients, and presented to them.
    pub fn start_tls(version: &str, nodes: usize) -> Option<Self> {
        Self::begin(version, nodes, true, None)
    }

    fn begin(version: &str, nodes: usize, tls: bool, snapshot: Option<&Path>) -> Option<Self> {
        let [program, ctl] = tools([&format!("etcd-{version}"), &format!("etcdctl-{version}")])?;
        let dir = Kept::new();
        let tls = tls.then(|| Tls::make(&dir.path().join("pki")));
        let ports: Vec<[u16; 2]> = (0..nodes).map(|_| [port::free(), port::free()]).collect();
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(n, [_, peer])| format!("n{n}=http://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        if let Some(snapshot) = snapshot {
            restore(&ctl, snapshot, dir.path(), &peers);
        }
        let nodes = ports.iter().enumerate().map(|(n, [client, peer])| {
            let arguments = arguments(dir.path(), tls.as_ref(), n, *client, *peer, &peers);
            let log = dir.path().join(format!("n{n}.log"));
            Node {
                daemon: Daemon::start(&program, arguments, &log),
                address: SocketAddr::from(([127, 0, 0, 1], *client)),
            }
        });
        let nodes = nodes.collect();
        let mut etcd = Self {
            ctl,
            nodes,
            tls,
            dir,
        };
        etcd.wait();
        Some(etcd)
    }

    /// As `--etcd-servers` takes them.
    pub fn endpoints(&self) -> String {
        let urls = self.nodes.iter().map(|n| self.url(n));
        urls.collect::<Vec<_>>().join(",")
    }

    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Where data and logs are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn url(&self, node: &Node) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", node.address)
    }

    /// Waits until every node that runs answers reads that need a quorum.
    pub fn wait(&mut self) {
        let end = Instant::now() + READY;
        for n in 0..self.nodes.len() {
            if !self.nodes[n].daemon.runs() {
                continue;
            }
            let url = self.url(&self.nodes[n]);
            while self.try_ctl(&["--endpoints", &url, "get", "x"]).is_none() {
                let daemon = &mut self.nodes[n].daemon;
                daemon.assert_running();
                let late = Instant::now() > end;
                assert!(!late, "etcd does not get ready:\n{}", daemon.log_end());
                crate::pause(PAUSE);
            }
        }
    }

    /// The index of the node that leads; waits for an election.
    pub fn leader(&self) -> usize {
        let end = Instant::now() + READY;
        loop {
            let leads = |node: &Node| {
                let url = self.url(node);
                let said =
                    self.try_ctl(&["--endpoints", &url, "endpoint", "status", "-w", "fields"]);
                let said = said.unwrap_or_default();
                let field = |name: &str| {
                    let line = said
                        .lines()
                        .find(|l| l.starts_with(&format!("\"{name}\" :")));
                    line.and_then(|l| l.split(':').nth(1))
                        .map(|v| v.trim().to_owned())
                };
                field("Leader").is_some() && field("Leader") == field("MemberID")
            };
            let found = self.nodes.iter().position(|n| n.daemon.runs() && leads(n));
            if let Some(leader) = found {
                return leader;
            }
            assert!(Instant::now() < end, "no node of etcd leads");
            crate::pause(PAUSE);
        }
    }

    /// `etcdctl ARGUMENTS` at all nodes; what it prints.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let endpoints = self.endpoints();
        let all = [&["--endpoints", endpoints.as_str()], arguments].concat();
        let said = self.try_ctl(&all);
        said.unwrap_or_else(|| panic!("etcdctl {arguments:?} fails"))
    }

    fn try_ctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = self.command(&self.ctl);
        command.args(["--command-timeout", "3s"]).args(arguments);
        let out = command.output().unwrap();
        let said = || String::from_utf8_lossy(&out.stdout).into_owned();
        out.status.success().then(said)
    }

    /// The path of this cluster's etcdctl.
    pub(crate) fn ctl_program(&self) -> &Path {
        &self.ctl
    }

    /// A program with the environment that etcdctl needs for this cluster.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
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

/// What is kept of a test that failed are the logs: data is large, and of no use
/// without its test.
impl Drop for Etcd {
    fn drop(&mut self) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            node.daemon.kill();
            let _ = std::fs::remove_dir_all(self.dir.path().join(format!("n{n}")));
        }
    }
}

impl Tls {
    /// Makes an authority, and certificates for servers and a client, in a directory.
    pub fn make(dir: &Path) -> Self {
        let now = Timestamp::now();
        let pki = Pki::open(dir, &[], now).unwrap();
        let client = pki.client("root", &[], now).unwrap();
        let made = Self {
            ca: dir.join("ca.crt"),
            certificate: dir.join("client.crt"),
            key: dir.join("client.key"),
        };
        std::fs::write(&made.certificate, client.certificate_pem).unwrap();
        std::fs::write(&made.key, client.key_pem).unwrap();
        made
    }
}

/// Makes the data directory of the node `n0`, the only one.
fn restore(ctl: &Path, snapshot: &Path, dir: &Path, peers: &str) {
    let peer = peers.strip_prefix("n0=").unwrap();
    let out = Command::new(ctl)
        .args(["snapshot", "restore"])
        .arg(snapshot)
        .args(["--name=n0", &format!("--initial-cluster={peers}")])
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--data-dir={}", dir.join("n0").display()))
        .env("ETCDCTL_API", "3")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "etcdctl snapshot restore: {said}");
}

fn arguments(
    dir: &Path,
    tls: Option<&Tls>,
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
