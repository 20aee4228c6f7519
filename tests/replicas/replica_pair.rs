//! Two replicas of Flotilla on one etcd, standalone or in aggregated mode.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::cluster::{HOST_CONTROLLERS, KubernetesClusterOptions};
use harness::etcd::EtcdCluster;
use harness::{ApiServerClient, KubernetesCluster, TcpRelay};
use serde_json::json;
use tempfile::TempDir;

use crate::replicas::flotilla_process::{BINARY, FlotillaProcess, join};
use crate::replicas::lease::{self, wait_for_leader};

/// The namespace of Flotilla in the host.
const NAMESPACE: &str = "flotilla-system";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether the replicas are behind a kube-apiserver.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ControlPlaneMode {
    /// They serve everything themselves.
    Standalone,
    /// They are behind a kube-apiserver, which reaches them by one Service.
    Aggregated,
}

pub(crate) struct ReplicaPair {
    pub(crate) replicas: [FlotillaProcess; 2],
    host: Option<AggregatorHost>,
    _etcd: EtcdCluster,
}

struct AggregatorHost {
    cluster: KubernetesCluster,
    /// Forwards connections of the Service to a replica that is up.
    _relay: TcpRelay,
}

impl ReplicaPair {
    /// Returns `None` if a tool is missing, which `harness::tools` has recorded.
    pub(crate) async fn start(
        form: ControlPlaneMode,
        version: &str,
        flags: &[&str],
    ) -> Option<Self> {
        Self::start_with(Path::new(BINARY), form, version, flags).await
    }

    /// Like [`Self::start`], with another binary.
    pub(crate) async fn start_with(
        program: &Path,
        form: ControlPlaneMode,
        version: &str,
        flags: &[&str],
    ) -> Option<Self> {
        // On this thread, whose name is that of the test.
        harness::tools([&format!("etcd-{version}")])?;
        if matches!(form, ControlPlaneMode::Aggregated) {
            harness::tools(["kube-apiserver", "kube-controller-manager"])?;
        }
        let program = program.to_owned();
        let version = version.to_owned();
        let started = tokio::task::spawn_blocking(move || {
            let etcd = EtcdCluster::start(&version, 1)?;
            let options = KubernetesClusterOptions {
                name: "host",
                controllers: HOST_CONTROLLERS,
                flags: &[],
            };
            let host = match form {
                ControlPlaneMode::Standalone => None,
                ControlPlaneMode::Aggregated => Some(KubernetesCluster::start(&options, &etcd)?),
            };
            Some((etcd, host))
        });
        let (etcd, host) = started.await.unwrap()?;
        let mut all: Vec<String> = flags.iter().map(|f| (*f).to_owned()).collect();
        all.push(format!("--etcd-servers={}", etcd.endpoints()));
        let relay = TcpRelay::start(&[]);
        if let Some(cluster) = &host {
            let control = ApiServerClient::connect("host", &cluster.kubeconfig);
            control.create_namespace(NAMESPACE).await;
            control
                .create(json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"name": "flotilla", "namespace": NAMESPACE},
                    "spec": {"type": "ExternalName", "externalName": "localhost"}}))
                .await;
            let kubeconfig = cluster.kubeconfig.display();
            all.push(format!("--kubeconfig={kubeconfig}"));
            all.push(format!("--service-port={}", relay.address().port()));
        }
        let nodes = tokio::task::spawn_blocking(move || {
            let flags: Vec<&str> = all.iter().map(String::as_str).collect();
            [(); 2].map(|()| FlotillaProcess::serve_program(&program, &flags))
        });
        let nodes = nodes.await.unwrap();
        relay.set_servers(&nodes.each_ref().map(|n| n.address.parse().unwrap()));
        let host = host.map(|cluster| AggregatorHost {
            cluster,
            _relay: relay,
        });
        Some(Self {
            replicas: nodes,
            host,
            _etcd: etcd,
        })
    }

    /// A client of the control plane: of the host in aggregated mode, else of the `n`th replica.
    pub(crate) fn control(&self, n: usize) -> ApiServerClient {
        ApiServerClient::connect("control plane", &self.kubeconfig(n))
    }

    fn kubeconfig(&self, n: usize) -> PathBuf {
        match &self.host {
            Some(host) => host.cluster.kubeconfig.clone(),
            None => self.replicas[n].kubeconfig(),
        }
    }

    /// The index of the replica that leads.
    pub(crate) async fn leader_index(&self, server: &ApiServerClient) -> usize {
        let namespace = match &self.host {
            Some(_) => NAMESPACE,
            None => lease::NAMESPACE,
        };
        let end = Instant::now() + TIMEOUT;
        loop {
            let who = wait_for_leader(server, namespace).await;
            let logged = |node: &FlotillaProcess| node.log_text().contains(&who);
            if let Some(index) = self.replicas.iter().position(logged) {
                return index;
            }
            assert!(Instant::now() < end, "{who} is none of the replicas");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts and joins the members `member1`, `member2`, ... and waits until they are Ready.
    pub(crate) async fn join_members(
        &self,
        count: usize,
    ) -> (Vec<FlotillaProcess>, Vec<ApiServerClient>) {
        let control = self.control(0);
        if let Some(host) = &self.host {
            // A registered APIService is not routed yet.
            host.wait_until_routed(&control).await;
        }
        let mut nodes = Vec::new();
        let mut servers = Vec::new();
        for n in 1..=count {
            let (name, node) = (format!("member{n}"), FlotillaProcess::member());
            join(&name, &node, &self.kubeconfig(0)).await;
            control.wait_until_cluster_ready(&name).await;
            servers.push(node.connect(&name));
            nodes.push(node);
        }
        (nodes, servers)
    }

    /// Starts a load balancer for both replicas, with a kubeconfig whose server it is.
    pub(crate) fn load_balancer(&self) -> ReplicaLoadBalancer {
        let addresses = self.replicas.each_ref().map(|n| n.address.parse().unwrap());
        let relay = TcpRelay::start(&addresses);
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let direct = std::fs::read_to_string(self.replicas[0].kubeconfig()).unwrap();
        let through = direct.replace(&self.replicas[0].address, &relay.address().to_string());
        assert!(direct != through, "{direct}");
        std::fs::write(&kubeconfig, through).unwrap();
        ReplicaLoadBalancer {
            kubeconfig,
            relay,
            _dir: dir,
        }
    }
}

impl AggregatorHost {
    /// Waits until the host routes requests for the groups of Flotilla.
    async fn wait_until_routed(&self, control: &ApiServerClient) {
        let end = Instant::now() + TIMEOUT;
        for group in ["cluster", "policy", "work"] {
            let version = if group == "work" {
                "v1alpha2"
            } else {
                "v1alpha1"
            };
            let path = format!("/apis/{group}.karmada.io/{version}");
            while let Err(error) = control.api.get_raw(&path).await {
                assert!(Instant::now() < end, "{path}: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

pub(crate) struct ReplicaLoadBalancer {
    kubeconfig: PathBuf,
    relay: TcpRelay,
    _dir: TempDir,
}

impl ReplicaLoadBalancer {
    /// `host:port`
    pub(crate) fn address(&self) -> String {
        self.relay.address().to_string()
    }

    pub(crate) fn connect(&self, name: &str) -> ApiServerClient {
        ApiServerClient::connect(name, &self.kubeconfig)
    }
}
