//! Measures the rollout of many Deployments in aggregated mode: a real kube-apiserver stores
//! the templates, and Flotilla's own etcd stores bindings and Works.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use harness::cluster::{HOST_CONTROLLERS, KubernetesClusterOptions};
use harness::{EtcdCluster, KubernetesCluster, etcd, port};
use serde_json::json;

use crate::fleet::{MEMBERS, MeasuredFleet};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MIB, MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;
use crate::objects::{CLUSTERS, DEPLOYMENTS, POLICIES, policy};

const NAMESPACES: &str = "/api/v1/namespaces";
const SERVED_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1).context("no etcd")?;
    let options = KubernetesClusterOptions {
        name: "host",
        controllers: HOST_CONTROLLERS,
        flags: &[],
    };
    let host = KubernetesCluster::start(&options, &etcd).context("no kube-apiserver")?;
    let own = EtcdCluster::start(etcd::VERSION_3_5, 1).context("no etcd")?;
    let fleet = MeasuredFleet::start(|dir| start_behind_host(dir, &host, &own.endpoints()))?;
    let kubeconfig = fleet.control_plane.read_kubeconfig()?;
    BenchConnection::open(&kubeconfig)?.post(POLICIES, &policy())?;
    let watches = MemberWatches::open(&fleet.members, &[DEPLOYMENTS])?;
    let roll_out = fleet.roll_out(&watches, 0)?;
    let setup = format!(
        "300 Deployments created in a kube-apiserver, to {MEMBERS} simulated members that do not sync their writes, objects of ours in an etcd"
    );
    report.record(
        "behind_rate",
        roll_out.rate,
        "1/s",
        MeasurementLimit::None,
        &setup,
    );
    report.record(
        "behind_applied",
        roll_out.applied,
        "s",
        MeasurementLimit::None,
        &setup,
    );
    report.record(
        "behind_cpu",
        roll_out.cpu,
        "s",
        MeasurementLimit::Below(4.0),
        &setup,
    );
    let resident = fleet.control_plane.resident_bytes()? / MIB;
    report.record(
        "behind_memory",
        resident,
        "MiB",
        MeasurementLimit::None,
        &setup,
    );
    Ok(())
}

/// Starts Flotilla behind `host`, which reaches it by a Service of type ExternalName that
/// points to `localhost`.
fn start_behind_host(
    dir: &Path,
    host: &KubernetesCluster,
    etcd: &str,
) -> anyhow::Result<MeasuredProcess> {
    let kubeconfig = Kubeconfig::read(&host.kubeconfig)?;
    let mut connection = BenchConnection::open(&kubeconfig)?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flotilla-system"}});
    connection.post(NAMESPACES, &namespace.to_string())?;
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "flotilla", "namespace": "flotilla-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let services = format!("{NAMESPACES}/flotilla-system/services");
    connection.post(&services, &service.to_string())?;
    let (dir, port) = (dir.display().to_string(), port::free_port().to_string());
    let listen = format!("127.0.0.1:{port}");
    let arguments = [
        "--listen",
        &listen,
        "--data-dir",
        &dir,
        "--service-port",
        &port,
        "--etcd-servers",
        etcd,
    ];
    let plane = MeasuredProcess::serve_behind_host(&host.kubeconfig, &arguments)?;
    wait_until("the host proxies to Flotilla", SERVED_TIMEOUT, || {
        Ok([CLUSTERS, POLICIES]
            .iter()
            .all(|path| connection.get(path).is_ok_and(|reply| reply.code == 200)))
    })?;
    Ok(plane)
}
