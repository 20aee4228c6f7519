//! Compares Flotilla with a kube-apiserver and with etcd itself, on one machine and with the
//! same objects.
//!
//! All API servers get the same requests from the same client: ConfigMaps of 4 KiB, created
//! and read by a ServiceAccount under RBAC, with managed fields. The CPU time of a server
//! includes that of its etcd.

mod api_server;
mod bare_etcd;
mod compared_server;

use std::time::Duration;

use anyhow::Context;
use harness::cluster::KubernetesClusterOptions;
use harness::{EtcdCluster, KubernetesCluster, etcd};

use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MeasuredProcess, wait_until};
use crate::measurement::MeasurementRecorder;
use compared_server::ComparedServer;

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    for start in [start_embedded, start_on_etcd, start_kube_apiserver] {
        let (server, administrator) = start()?;
        api_server::measure(report, &server, &administrator)?;
    }
    bare_etcd::run(report)
}

fn start_embedded() -> anyhow::Result<(ComparedServer, Kubeconfig)> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let administrator = process.read_kubeconfig()?;
    let server = ComparedServer::new("flotilla", vec![process.id()], (process, dir));
    Ok((server, administrator))
}

fn start_on_etcd() -> anyhow::Result<(ComparedServer, Kubeconfig)> {
    let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1).context("no etcd")?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().display().to_string();
    let endpoints = etcd.endpoints();
    let process = MeasuredProcess::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &path,
        "--etcd-servers",
        &endpoints,
    ])?;
    let administrator = process.read_kubeconfig()?;
    let server = ComparedServer::new(
        "flotilla_etcd",
        vec![process.id(), etcd.nodes[0].daemon.pid()],
        (process, etcd, dir),
    );
    Ok((server, administrator))
}

fn start_kube_apiserver() -> anyhow::Result<(ComparedServer, Kubeconfig)> {
    let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1).context("no etcd")?;
    let options = KubernetesClusterOptions {
        name: "compared",
        controllers: "",
        flags: &[],
    };
    let cluster = KubernetesCluster::start(&options, &etcd).context("no kube-apiserver")?;
    let administrator = Kubeconfig::read(&cluster.kubeconfig)?;
    let mut connection = BenchConnection::open(&administrator)?;
    // It is ready before it has created its namespaces.
    wait_until("the namespace default", START_TIMEOUT, || {
        let namespace = connection.get("/api/v1/namespaces/default")?;
        Ok(namespace.code == 200)
    })?;
    let server = ComparedServer::new(
        "kubernetes",
        vec![cluster.apiserver.pid(), etcd.nodes[0].daemon.pid()],
        (cluster, etcd),
    );
    Ok((server, administrator))
}
