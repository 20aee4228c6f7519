//! A control plane with many members that generate their pods, in this process.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::fleet::count_ready_clusters;
use crate::generated_pods::PodGenerator;
use crate::generated_servers::{GeneratedCollection, GeneratedServers};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MeasuredProcess, wait_until};
use crate::objects::CLUSTERS;

/// The pods of all members in the fleet view.
pub(crate) const PODS: &str = "/fleet/api/v1/pods";
const CLUSTER_NAMESPACE: &str = "bench-clusters";
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const FILL_TIMEOUT: Duration = Duration::from_secs(1800);
/// The cores of an idle server, and of the heartbeats of one member.
const IDLE_CORES: f64 = 0.05;
const IDLE_CORES_PER_MEMBER: f64 = 0.0005;

/// A control plane whose members are this process.
pub(crate) struct GeneratedFleet {
    pub(crate) process: MeasuredProcess,
    pub(crate) kubeconfig: Kubeconfig,
    pub(crate) servers: GeneratedServers,
    pub(crate) members: usize,
    pub(crate) pods_per_member: usize,
    _dir: tempfile::TempDir,
}

impl GeneratedFleet {
    /// Starts a control plane with members that are Ready.
    pub(crate) fn start(members: usize, pods_per_member: usize) -> anyhow::Result<Self> {
        let generator = PodGenerator::new();
        let pods = GeneratedCollection {
            path: "/api/v1/pods",
            kind: "Pod",
            count: pods_per_member,
            encode: Box::new(move |state| generator.encode(state)),
        };
        let servers = GeneratedServers::start(members, vec![pods])?;
        let dir = tempfile::tempdir()?;
        let process = MeasuredProcess::serve(dir.path())?;
        let fleet = Self {
            kubeconfig: process.read_kubeconfig()?,
            process,
            servers,
            members,
            pods_per_member,
            _dir: dir,
        };
        fleet.register_members()?;
        Ok(fleet)
    }

    fn register_members(&self) -> anyhow::Result<()> {
        let mut connection = BenchConnection::open(&self.kubeconfig)?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": CLUSTER_NAMESPACE}});
        connection.post("/api/v1/namespaces", &namespace.to_string())?;
        let secrets = format!("/api/v1/namespaces/{CLUSTER_NAMESPACE}/secrets");
        let data = json!({"token": STANDARD.encode("bench"),
            "caBundle": STANDARD.encode(self.servers.ca_pem())});
        for member in 0..self.members {
            let name = GeneratedServers::name(member);
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": data,
                "metadata": {"name": name, "namespace": CLUSTER_NAMESPACE}});
            connection.post(&secrets, &secret.to_string())?;
            let reference = json!({"namespace": CLUSTER_NAMESPACE, "name": name});
            let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": {"syncMode": "Push", "id": name,
                    "apiEndpoint": self.servers.url(member), "secretRef": reference,
                    "impersonatorSecretRef": reference}});
            connection.post(CLUSTERS, &cluster.to_string())?;
        }
        wait_until("all members ready", READY_TIMEOUT, || {
            Ok(count_ready_clusters(&mut connection)? == self.members)
        })
    }

    /// Waits until it does nothing but its heartbeats.
    pub(crate) fn wait_until_idle(&self) -> anyhow::Result<f64> {
        let cores = IDLE_CORES + IDLE_CORES_PER_MEMBER * self.members as f64;
        self.process.wait_until_below(cores, FILL_TIMEOUT)
    }

    /// Reads pods, and waits until the pods of all members are cached.
    pub(crate) fn fill(&self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let mut connection = BenchConnection::open(&self.kubeconfig)?;
        wait_until("the pods of all members", FILL_TIMEOUT, || {
            let version = list_version(&mut connection)?;
            if version.is_empty() {
                return Ok(false);
            }
            let version = URL_SAFE_NO_PAD.decode(version)?;
            let version: Value = machinery::json::from_slice(&version)?;
            let cached = version.as_object().map_or(0, |by_member| by_member.len());
            Ok(cached == self.members)
        })?;
        Ok(start.elapsed())
    }
}

/// The resourceVersion of a list of the members that are cached; empty while there are none.
pub(crate) fn list_version(connection: &mut BenchConnection) -> anyhow::Result<String> {
    let path = format!("{PODS}?limit=1");
    let list = connection.get(&path)?.expect_code(200, &path)?.json()?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.unwrap_or_default().to_owned())
}
