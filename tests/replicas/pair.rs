//! Two replicas on one etcd.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::etcd::Etcd;
use harness::{Relay, Server};
use tempfile::TempDir;

use crate::lease::leader;
use crate::processes::{Node, join};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    _etcd: Etcd,
}

impl Pair {
    /// `None`: there is no such etcd here, which was said.
    pub(crate) fn start(version: &str, flags: &[&str]) -> Option<Self> {
        let etcd = Etcd::start(version, 1)?;
        let servers = format!("--etcd-servers={}", etcd.endpoints());
        let all = [&[servers.as_str()], flags].concat();
        let nodes = [Node::serve(&all), Node::serve(&all)];
        Some(Self { nodes, _etcd: etcd })
    }

    /// Which of the nodes leads.
    pub(crate) async fn leader(&self, ask: &Server) -> usize {
        let end = Instant::now() + PATIENCE;
        loop {
            let who = leader(ask).await;
            let said = |node: &Node| node.said().contains(&who);
            if let Some(found) = self.nodes.iter().position(said) {
                return found;
            }
            assert!(Instant::now() < end, "{who} is none of ours");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Members `member1`, `member2`, ... that joined and are ready.
    pub(crate) async fn members(&self, count: usize) -> (Vec<Node>, Vec<Server>) {
        let control = self.nodes[0].connect("control plane");
        let mut nodes = Vec::new();
        let mut servers = Vec::new();
        for n in 1..=count {
            let (name, node) = (format!("member{n}"), Node::member());
            join(&name, &node, &self.nodes[0].kubeconfig()).await;
            control.until_ready(&name).await;
            servers.push(node.connect(&name));
            nodes.push(node);
        }
        (nodes, servers)
    }

    /// Something that balances load over both, and a kubeconfig that leads there.
    pub(crate) fn balanced(&self) -> Balanced {
        let addresses = self.nodes.each_ref().map(|n| n.address.parse().unwrap());
        let relay = Relay::start(&addresses);
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let direct = std::fs::read_to_string(self.nodes[0].kubeconfig()).unwrap();
        let through = direct.replace(&self.nodes[0].address, &relay.address().to_string());
        assert!(direct != through, "{direct}");
        std::fs::write(&kubeconfig, through).unwrap();
        Balanced {
            kubeconfig,
            _relay: relay,
            _dir: dir,
        }
    }
}

pub(crate) struct Balanced {
    kubeconfig: PathBuf,
    _relay: Relay,
    _dir: TempDir,
}

impl Balanced {
    pub(crate) fn connect(&self, name: &str) -> Server {
        Server::connect(name, &self.kubeconfig)
    }
}
