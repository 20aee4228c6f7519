//! Creation: many clients, small objects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::figure::{Limit, Report};
use crate::kubeconfig::Kubeconfig;
use crate::objects::{CONFIGMAPS, configmap};
use crate::process::Process;
use crate::wire::Connection;

const OBJECTS: usize = 20_000;

/// What is posted where, by how many.
pub(crate) struct Load<'a> {
    pub(crate) path: &'a str,
    pub(crate) count: usize,
    pub(crate) connections: usize,
}

/// Posts objects `0..count` over connections of their own.
pub(crate) fn load(
    to: &Kubeconfig,
    load: &Load<'_>,
    object: impl Fn(usize) -> String + Sync,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<()> {
        let mut connection = Connection::open(to)?;
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= load.count {
                return Ok(());
            }
            connection.post(load.path, &object(n))?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..load.connections).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| {
            w.join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a creator broke off")))
        })
    })
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = Process::serve(dir.path())?;
    let to = process.access()?;
    let mut of = Load {
        path: CONFIGMAPS,
        count: 200,
        connections: 1,
    };
    load(&to, &of, |n| configmap(&format!("warm-{n}"), 100))?;
    (of.count, of.connections) = (OBJECTS, 16);
    let before = process.cpu()?;
    let began = Instant::now();
    load(&to, &of, |n| configmap(&format!("object-{n}"), 100))?;
    let took = began.elapsed().as_secs_f64();
    let cpu = (process.cpu()? - before) / OBJECTS as f64 * 1000.0;
    let setup = "ConfigMaps of 300 bytes, 16 creators, HTTPS, durable (kube-apiserver with etcd: 1,256/s at 1.0 ms)";
    let rate = OBJECTS as f64 / took;
    report.tell("create_rate", rate, "1/s", Limit::AtLeast(1256.0), setup);
    report.tell("create_cpu", cpu, "ms", Limit::Below(1.0), setup);
    process.stop()
}
