//! Measures the watches of the fleet view: the CPU of a delivered event beside one of the server's own
//! watches, and how long after a change in a member its event arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::generated_fleet::{GeneratedFleet, PODS, list_version};
use crate::generated_pods::CHANGE_ANNOTATION;
use crate::http_connection::BenchConnection;
use crate::measured_process::wait_until;
use crate::measurement::{MeasurementLimit, MeasurementRecorder, median};
use crate::objects::{CONFIGMAPS, configmap};
use crate::percentiles::p99;
use crate::watch_fanout::{CONNECTIONS, open_streams};

const STREAMS_PER_CONNECTION: usize = 10;
const WATCHERS: usize = CONNECTIONS * STREAMS_PER_CONNECTION;
/// The changes that are delivered to all watchers, and how many of them happen in a second.
const DELIVERED_CHANGES: usize = 1000;
const DELIVERED_CHANGES_PER_SECOND: usize = 100;
/// The changes whose events are timed.
const TIMED_CHANGES: usize = 20_000;
const TIMED_CHANGES_PER_SECOND: usize = 1000;
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The bytes of a ConfigMap besides its data, about.
const CONFIG_MAP_BYTES: usize = 400;

pub(crate) fn run(
    report: &mut MeasurementRecorder,
    fleet: &GeneratedFleet,
    pod_bytes: usize,
) -> anyhow::Result<()> {
    measure_cost(report, fleet, pod_bytes)?;
    measure_staleness(report, fleet)
}

/// Calls `change` with the numbers of changes, so many times a second; what is late is made up for.
fn pace(
    changes: usize,
    per_second: usize,
    mut change: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    for number in 0..changes {
        let due = Duration::from_secs_f64(number as f64 / per_second as f64);
        let early = due.saturating_sub(start.elapsed());
        // Shorter times are not kept by the timer.
        if early > Duration::from_millis(1) {
            std::thread::park_timeout(early);
        }
        change(number)?;
    }
    Ok(())
}

/// Changes pods of all members in turn.
fn change_pod(fleet: &GeneratedFleet, number: usize) {
    let (member, pod) = (number % fleet.members, number / fleet.members);
    fleet
        .servers
        .change(member, pod % fleet.pods_per_member, number + 1);
}

/// The CPU seconds of [`DELIVERED_CHANGES`] with so many watches on each connection.
fn delivery_cpu_seconds(
    fleet: &GeneratedFleet,
    path: &str,
    streams_per_connection: usize,
    mut change: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let arrived = Arc::new(AtomicUsize::new(0));
    let streams = open_streams(&fleet.kubeconfig, path, streams_per_connection, &arrived);
    let watchers = runtime.block_on(streams)?;
    let before = fleet.wait_until_idle()?;
    let start = Instant::now();
    pace(DELIVERED_CHANGES, DELIVERED_CHANGES_PER_SECOND, &mut change)?;
    let events = DELIVERED_CHANGES * streams_per_connection * CONNECTIONS;
    wait_until("all events", ARRIVAL_TIMEOUT, || {
        Ok(arrived.load(Ordering::Relaxed) >= events)
    })?;
    // The heartbeats of the same time are in each measurement.
    let duration = Duration::from_secs((DELIVERED_CHANGES / DELIVERED_CHANGES_PER_SECOND) as u64);
    let rest = (duration + Duration::from_secs(2)).saturating_sub(start.elapsed());
    std::thread::park_timeout(rest);
    let cpu = fleet.process.cpu_seconds()? - before;
    let delivered = arrived.load(Ordering::Relaxed);
    ensure!(
        delivered == events,
        "{delivered} events instead of {events}"
    );
    drop(watchers);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(cpu)
}

fn measure_cost(
    report: &mut MeasurementRecorder,
    fleet: &GeneratedFleet,
    pod_bytes: usize,
) -> anyhow::Result<()> {
    let mut connection = BenchConnection::open(&fleet.kubeconfig)?;
    let size = pod_bytes.saturating_sub(CONFIG_MAP_BYTES);
    let mut writes = 0;
    let mut own_cpu_seconds = |streams| {
        let list = connection.get(&format!("{CONFIGMAPS}?limit=1"))?.json()?;
        let version = list["metadata"]["resourceVersion"].as_str();
        let version = version.context("no resourceVersion")?;
        let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={version}");
        delivery_cpu_seconds(fleet, &path, streams, |_| {
            writes += 1;
            let map = configmap(&format!("object-{writes}"), size);
            connection.post(CONFIGMAPS, &map).map(drop)
        })
    };
    let per_delivery =
        |none: f64, all: f64| (all - none) / (DELIVERED_CHANGES * WATCHERS) as f64 * 1e6;
    let own = per_delivery(
        own_cpu_seconds(0)?,
        own_cpu_seconds(STREAMS_PER_CONNECTION)?,
    );
    let mut connection = BenchConnection::open(&fleet.kubeconfig)?;
    let mut fleet_cpu_seconds = |streams| {
        let version = list_version(&mut connection)?;
        let path = format!("{PODS}?watch=true&resourceVersion={version}");
        delivery_cpu_seconds(fleet, &path, streams, |number| {
            change_pod(fleet, number);
            Ok(())
        })
    };
    let view = per_delivery(
        fleet_cpu_seconds(0)?,
        fleet_cpu_seconds(STREAMS_PER_CONNECTION)?,
    );
    let setup = format!(
        "{DELIVERED_CHANGES} changes of pods of {} members, {DELIVERED_CHANGES_PER_SECOND} a second, to {WATCHERS} watchers in the fleet view, HTTP/2, without what they cost with no watcher",
        fleet.members
    );
    let none = MeasurementLimit::None;
    report.record("fleet_view_event_cpu", view, "µs", none, &setup);
    let setup = format!("the same of ConfigMaps of about {pod_bytes} bytes in the control plane");
    report.record("own_event_cpu", own, "µs", none, &setup);
    let setup = "an event of the fleet view by one of the server's own watches";
    let limit = MeasurementLimit::Below(2.0);
    report.record("fleet_view_event_ratio", view / own, "times", limit, setup);
    Ok(())
}

/// The number of the change in the line of an event.
fn change_number(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let (_, rest) = line.split_once(CHANGE_ANNOTATION)?;
    let digits = rest.strip_prefix("\":\"")?.split('"').next()?;
    digits.parse().ok()
}

fn measure_staleness(
    report: &mut MeasurementRecorder,
    fleet: &GeneratedFleet,
) -> anyhow::Result<()> {
    let mut connection = BenchConnection::open(&fleet.kubeconfig)?;
    let version = list_version(&mut connection)?;
    let path = format!("{PODS}?watch=true&resourceVersion={version}");
    let closer = connection.closer()?;
    let (sender, arrivals) = mpsc::channel();
    let watcher = std::thread::spawn(move || {
        // The watch ends with its connection.
        let _ = connection.get_lines(&path, |line| {
            if let Some(change) = change_number(line) {
                let _ = sender.send((change, Instant::now()));
            }
        });
    });
    fleet.wait_until_idle()?;
    let before = fleet.process.cpu_seconds()?;
    let mut changed = Vec::with_capacity(TIMED_CHANGES);
    pace(TIMED_CHANGES, TIMED_CHANGES_PER_SECOND, |number| {
        changed.push(Instant::now());
        change_pod(fleet, number);
        Ok(())
    })?;
    let mut delays = Vec::with_capacity(TIMED_CHANGES);
    while delays.len() < TIMED_CHANGES {
        let arrival = arrivals.recv_timeout(ARRIVAL_TIMEOUT);
        let (change, at) = arrival.with_context(|| format!("after {} events", delays.len()))?;
        let began = changed.get(change - 1).context("an unknown change")?;
        delays.push(at.duration_since(*began).as_secs_f64() * 1000.0);
    }
    let cpu = fleet.process.cpu_seconds()? - before;
    drop(closer);
    let _ = watcher.join();
    let setup = format!(
        "from a change in one of {} members to its event at a watcher in the fleet view, {TIMED_CHANGES_PER_SECOND} changes a second, {TIMED_CHANGES} changes",
        fleet.members
    );
    let none = MeasurementLimit::None;
    report.record(
        "fleet_view_staleness",
        median(&mut delays),
        "ms",
        none,
        &setup,
    );
    let limit = MeasurementLimit::Below(1000.0);
    report.record(
        "fleet_view_staleness_p99",
        p99(&mut delays),
        "ms",
        limit,
        &setup,
    );
    let cores = cpu / (TIMED_CHANGES / TIMED_CHANGES_PER_SECOND) as f64;
    report.record("fleet_view_change_cores", cores, "cores", none, &setup);
    Ok(())
}
