//! Compares Flotilla with a kube-apiserver and with etcd itself, on one machine and with the
//! same objects.
//!
//! All API servers get the same requests from the same client: ConfigMaps of 4 KiB, created
//! and read by a ServiceAccount under RBAC, with managed fields. The CPU time of a server
//! includes that of its etcd.

mod api_server;
mod bare_etcd;

use std::any::Any;

use anyhow::Context;
use harness::cluster::KubernetesClusterOptions;
use harness::{EtcdCluster, KubernetesCluster, etcd};

use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MeasuredProcess, cpu_seconds};
use crate::measurement::MeasurementRecorder;

const OBJECTS: usize = 10_000;
const OBJECT_BYTES: usize = 4096;
const CREATORS: usize = 16;
const LIST_ROUNDS: usize = 11;
const GETS: usize = 2000;
const WATCH_WRITES: usize = 100;

/// A server with the processes that work for it.
struct ComparedServer {
    /// The prefix of its measurements.
    name: &'static str,
    processes: Vec<u32>,
    /// What must live as long as the server.
    _owner: Box<dyn Any>,
}

impl ComparedServer {
    /// CPU seconds of all its processes.
    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.processes.iter().map(|id| cpu_seconds(*id)).sum()
    }
}

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
    let server = ComparedServer {
        name: "flotilla",
        processes: vec![process.id()],
        _owner: Box::new((process, dir)),
    };
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
    let server = ComparedServer {
        name: "flotilla_etcd",
        processes: vec![process.id(), etcd.nodes[0].daemon.pid()],
        _owner: Box::new((process, etcd, dir)),
    };
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
    let server = ComparedServer {
        name: "kubernetes",
        processes: vec![cluster.apiserver.pid(), etcd.nodes[0].daemon.pid()],
        _owner: Box::new((cluster, etcd)),
    };
    Ok((server, administrator))
}
