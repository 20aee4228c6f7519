//! Measures the rollout of many Deployments in aggregated mode: a real kube-apiserver stores
//! the templates, and Flotilla's own etcd stores bindings and Works.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use harness::cluster::{HOST, Options};
use harness::{Cluster, Etcd, etcd, port};
use serde_json::json;

use crate::figure::{Limit, Report};
use crate::fleet::{Fleet, MEMBERS};
use crate::kubeconfig::Kubeconfig;
use crate::objects::{CLUSTERS, DEPLOYMENTS, POLICIES, policy};
use crate::process::{MIB, Process, until};
use crate::seen::Watches;
use crate::wire::Connection;

const NAMESPACES: &str = "/api/v1/namespaces";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let etcd = Etcd::start(etcd::NEW, 1).context("no etcd")?;
    let options = Options {
        name: "host",
        controllers: HOST,
        flags: &[],
    };
    let host = Cluster::start(&options, &etcd).context("no kube-apiserver")?;
    let own = Etcd::start(etcd::NEW, 1).context("no etcd")?;
    let fleet = Fleet::start(|dir| plane(dir, &host, &own.endpoints()))?;
    let to = fleet.plane.access()?;
    Connection::open(&to)?.post(POLICIES, &policy())?;
    let watches = Watches::open(&fleet.members, &[DEPLOYMENTS])?;
    let roll_out = fleet.roll_out(&watches, 0)?;
    let setup = format!(
        "300 Deployments created in a kube-apiserver, to {MEMBERS} simulated members that do not sync their writes, objects of ours in an etcd"
    );
    report.tell("behind_rate", roll_out.rate, "1/s", Limit::None, &setup);
    report.tell("behind_applied", roll_out.applied, "s", Limit::None, &setup);
    report.tell("behind_cpu", roll_out.cpu, "s", Limit::Below(4.0), &setup);
    let resident = fleet.plane.resident()? / MIB;
    report.tell("behind_memory", resident, "MiB", Limit::None, &setup);
    Ok(())
}

/// Starts Flotilla behind `host`, which reaches it by a Service of type ExternalName that
/// points to `localhost`.
fn plane(dir: &Path, host: &Cluster, etcd: &str) -> anyhow::Result<Process> {
    let to = Kubeconfig::read(&host.kubeconfig)?;
    let mut connection = Connection::open(&to)?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flotilla-system"}});
    connection.post(NAMESPACES, &namespace.to_string())?;
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "flotilla", "namespace": "flotilla-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let services = format!("{NAMESPACES}/flotilla-system/services");
    connection.post(&services, &service.to_string())?;
    let (dir, port) = (dir.display().to_string(), port::free().to_string());
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
    let plane = Process::behind(&host.kubeconfig, &arguments)?;
    until("the host proxies to Flotilla", PATIENCE, || {
        Ok([CLUSTERS, POLICIES]
            .iter()
            .all(|path| connection.get(path).is_ok_and(|reply| reply.code == 200)))
    })?;
    Ok(plane)
}
