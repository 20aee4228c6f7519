//! Measures how fast many clients create small objects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::MeasuredProcess;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{CONFIGMAPS, configmap};
use crate::service_account::create_user;

const OBJECTS: usize = 20_000;

/// The objects to create: the path of the resource, the number of objects and of connections.
pub(crate) struct CreateLoadConfig<'a> {
    pub(crate) path: &'a str,
    pub(crate) count: usize,
    pub(crate) connections: usize,
}

/// Creates objects `0..count` over separate connections; returns the milliseconds of each
/// request.
pub(crate) fn create_objects(
    kubeconfig: &Kubeconfig,
    load: &CreateLoadConfig<'_>,
    object: impl Fn(usize) -> String + Sync,
) -> anyhow::Result<Vec<f64>> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<f64>> {
        let (mut connection, mut times) = (BenchConnection::open(kubeconfig)?, Vec::new());
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= load.count {
                return Ok(times);
            }
            let object = object(n);
            let start = Instant::now();
            connection.post(load.path, &object)?;
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..load.connections).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::with_capacity(load.count);
        for worker in workers {
            let times = worker.join();
            all.extend(times.unwrap_or_else(|_| Err(anyhow::anyhow!("a creator panicked")))?);
        }
        Ok(all)
    })
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let administrator = process.read_kubeconfig()?;
    let user = create_user(&administrator, "bench")?;
    let warm = CreateLoadConfig {
        path: CONFIGMAPS,
        count: 200,
        connections: 1,
    };
    let of = CreateLoadConfig {
        count: OBJECTS,
        connections: 16,
        ..warm
    };
    for (name, access, who) in [
        ("create", &administrator, "the administrator"),
        ("create_user", &user, "a ServiceAccount with a Role"),
    ] {
        create_objects(access, &warm, |n| {
            configmap(&format!("{name}-warm-{n}").replace('_', "-"), 100)
        })?;
        let before = process.cpu_seconds()?;
        let start = Instant::now();
        let object = |n: usize| configmap(&format!("{name}-{n}").replace('_', "-"), 100);
        let mut times = create_objects(access, &of, object)?;
        let elapsed = start.elapsed().as_secs_f64();
        let cpu = (process.cpu_seconds()? - before) / OBJECTS as f64 * 1000.0;
        let setup = format!(
            "ConfigMaps of 300 bytes, 16 creators who are {who}, HTTPS, durable (kube-apiserver with etcd: 1,256/s at 1.0 ms)"
        );
        let rate = OBJECTS as f64 / elapsed;
        let limit = MeasurementLimit::AtLeast(1256.0);
        report.record(&format!("{name}_rate"), rate, "1/s", limit, &setup);
        let limit = MeasurementLimit::Below(1.0);
        report.record(&format!("{name}_cpu"), cpu, "ms", limit, &setup);
        let time = format!("{name}_time");
        report.record_percentiles(&time, &mut times, "ms", MeasurementLimit::None, &setup);
    }
    process.stop()
}
