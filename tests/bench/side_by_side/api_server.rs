//! The requests to each API server, and what they cost it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::compared_server::{
    CREATORS, ComparedServer, GETS, LIST_ROUNDS, OBJECT_BYTES, OBJECTS, WATCH_WRITES,
};
use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::wait_until;
use crate::measurement::{MeasurementLimit, MeasurementRecorder, median};
use crate::objects::{CONFIGMAPS, configmap};
use crate::service_account::create_user;
use crate::watch_fanout::{WATCHERS, open_watches};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The metadata that a server adds to an object of [`configmap`].
const ADDED_METADATA_BYTES: usize = 180;
const EVENTS_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn measure(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    administrator: &Kubeconfig,
) -> anyhow::Result<()> {
    let user = create_user(administrator, "bench")?;
    measure_creates(report, server, &user)?;
    for (form, accept, gzip) in [
        ("list", JSON, false),
        ("list_protobuf", PROTOBUF, false),
        ("list_gzip", JSON, true),
    ] {
        let mut connection = BenchConnection::open(&user)?;
        connection.accept(accept);
        if gzip {
            connection.accept_gzip();
        }
        let setup = "LIST of 10,000 ConfigMaps of 4 KiB, body discarded";
        measure_reads(report, server, form, setup, LIST_ROUNDS, || {
            let (_, compressed) = connection.get_discarding_body(CONFIGMAPS)?;
            ensure!(compressed == gzip, "compressed: {compressed}");
            Ok(())
        })?;
    }
    let mut connection = BenchConnection::open(&user)?;
    let path = format!("{CONFIGMAPS}/object-07777");
    let setup = "GET of a ConfigMap of 4 KiB, one client";
    measure_reads(report, server, "get", setup, GETS, || {
        connection.get_discarding_body(&path).map(drop)
    })?;
    measure_watches(report, server, administrator)
}

fn object(name: &str) -> String {
    let bare = configmap(name, 0).len() + ADDED_METADATA_BYTES;
    configmap(name, OBJECT_BYTES - bare)
}

fn measure_creates(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    user: &Kubeconfig,
) -> anyhow::Result<()> {
    let load = CreateLoadConfig {
        path: CONFIGMAPS,
        count: OBJECTS,
        connections: CREATORS,
    };
    let cpu = server.cpu_seconds()?;
    let start = Instant::now();
    let mut times = create_objects(user, &load, |n| object(&format!("object-{n:05}")))?;
    let rate = OBJECTS as f64 / start.elapsed().as_secs_f64();
    let cpu = (server.cpu_seconds()? - cpu) / OBJECTS as f64 * 1000.0;
    let (no_limit, setup) = (
        MeasurementLimit::None,
        "10,000 ConfigMaps of 4 KiB, 16 clients as a ServiceAccount with a Role, managed fields, durable",
    );
    let name = |figure: &str| format!("{}_create_{figure}", server.name);
    report.record(&name("rate"), rate, "1/s", no_limit, setup);
    report.record(&name("cpu"), cpu, "ms", no_limit, setup);
    report.record_percentiles(&name("time"), &mut times, "ms", no_limit, setup);
    Ok(())
}

/// The median time of a read and its CPU time.
fn measure_reads(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    form: &str,
    setup: &str,
    rounds: usize,
    mut read: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    read()?;
    let cpu = server.cpu_seconds()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        read()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let cpu = (server.cpu_seconds()? - cpu) / rounds as f64 * 1000.0;
    let name = |figure: &str| format!("{}_{form}_{figure}", server.name);
    let no_limit = MeasurementLimit::None;
    report.record(&name("time"), median(&mut times), "ms", no_limit, setup);
    report.record(&name("cpu"), cpu, "ms", no_limit, setup);
    Ok(())
}

fn measure_watches(
    report: &mut MeasurementRecorder,
    server: &ComparedServer,
    administrator: &Kubeconfig,
) -> anyhow::Result<()> {
    let mut writer = BenchConnection::open(administrator)?;
    let list = writer.get(&format!("{CONFIGMAPS}?limit=1"))?.json()?;
    let revision = list["metadata"]["resourceVersion"].as_str();
    let revision = revision.context("no revision")?;
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={revision}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let arrived = Arc::new(AtomicUsize::new(0));
    let watchers = runtime.block_on(open_watches(administrator, &path, &arrived))?;
    let events = WATCH_WRITES * WATCHERS;
    let cpu = server.cpu_seconds()?;
    let start = Instant::now();
    for n in 0..WATCH_WRITES {
        writer.post(CONFIGMAPS, &object(&format!("watched-{n}")))?;
    }
    wait_until("all events", EVENTS_TIMEOUT, || {
        Ok(arrived.load(Ordering::Relaxed) >= events)
    })?;
    let rate = events as f64 / start.elapsed().as_secs_f64();
    let cpu = (server.cpu_seconds()? - cpu) / events as f64 * 1e6;
    drop(watchers);
    runtime.shutdown_timeout(Duration::from_secs(1));
    let (no_limit, setup) = (
        MeasurementLimit::None,
        "100 writes of 4 KiB to 1,000 watchers over HTTP/2, the writes included",
    );
    let name = |figure: &str| format!("{}_watch_{figure}", server.name);
    report.record(&name("rate"), rate, "1/s", no_limit, setup);
    report.record(&name("cpu"), cpu, "µs", no_limit, setup);
    Ok(())
}
