//! Measures many watchers of one resource: memory of an idle watcher, CPU of an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::http_connection::BenchConnection;
use crate::http2_connection::Http2Connection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{CONFIGMAPS, configmap};

pub(crate) const CONNECTIONS: usize = 10;
const STREAMS_PER_CONNECTION: usize = 100;
pub(crate) const WATCHERS: usize = CONNECTIONS * STREAMS_PER_CONNECTION;
const WRITES: usize = 200;

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let process = MeasuredProcess::serve(dir.path())?;
    let kubeconfig = process.read_kubeconfig()?;
    let mut writer = BenchConnection::open(&kubeconfig)?;
    for n in 0..10 {
        writer.post(CONFIGMAPS, &configmap(&format!("warm-{n}"), 1000))?;
    }
    let list = writer.get(CONFIGMAPS)?.json()?;
    let revision = list["metadata"]["resourceVersion"]
        .as_str()
        .context("no revision")?;
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={revision}");
    process.wait_until_idle(Duration::from_secs(10))?;
    let resident = process.resident_bytes()?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let arrived = Arc::new(AtomicUsize::new(0));
    let watchers = runtime.block_on(open_watches(&kubeconfig, &path, &arrived))?;
    process.wait_until_idle(Duration::from_secs(10))?;
    let kib_per_watcher = (process.resident_bytes()? - resident) / WATCHERS as f64 / 1024.0;
    let setup = "1,000 watchers on ConfigMaps, HTTP/2, 100 streams a connection";
    report.record(
        "watcher_memory",
        kib_per_watcher,
        "KiB",
        MeasurementLimit::Below(10.0),
        setup,
    );

    let before = process.cpu_seconds()?;
    let start = Instant::now();
    for n in 0..WRITES {
        writer.post(CONFIGMAPS, &configmap(&format!("object-{n}"), 1000))?;
    }
    wait_until("all events", Duration::from_secs(60), || {
        Ok(arrived.load(Ordering::Relaxed) >= WRITES * WATCHERS)
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    let events = arrived.load(Ordering::Relaxed);
    ensure!(
        events == WRITES * WATCHERS,
        "{events} events instead of {}",
        WRITES * WATCHERS
    );
    let cpu = (process.cpu_seconds()? - before) / events as f64 * 1e6;
    let setup = "200 writes of 1.3 KiB to 1,000 watchers, the writes included";
    report.record("event_cpu", cpu, "µs", MeasurementLimit::Below(5.0), setup);
    report.record(
        "event_rate",
        events as f64 / elapsed,
        "1/s",
        MeasurementLimit::None,
        setup,
    );
    drop(watchers);
    runtime.shutdown_timeout(Duration::from_secs(1));
    process.stop()
}

/// Opens [`WATCHERS`] watches; the events that arrive are counted in `arrived`.
pub(crate) async fn open_watches(
    kubeconfig: &Kubeconfig,
    path: &str,
    arrived: &Arc<AtomicUsize>,
) -> anyhow::Result<JoinSet<()>> {
    open_streams(kubeconfig, path, STREAMS_PER_CONNECTION, arrived).await
}

/// The same with a number of watches on each of [`CONNECTIONS`].
pub(crate) async fn open_streams(
    kubeconfig: &Kubeconfig,
    path: &str,
    streams_per_connection: usize,
    arrived: &Arc<AtomicUsize>,
) -> anyhow::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Http2Connection::open(kubeconfig, &mut tasks).await?;
        for _ in 0..streams_per_connection {
            let reply = connection.get(path).await?;
            ensure!(reply.status() == 200, "watch: {}", reply.status());
            let arrived = Arc::clone(arrived);
            tasks.spawn(async move {
                let mut body = reply.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    let lines = frame
                        .data_ref()
                        .map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
                    arrived.fetch_add(lines, Ordering::Relaxed);
                }
            });
        }
    }
    Ok(tasks)
}
