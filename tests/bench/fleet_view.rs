//! Measures the fleet view: the memory of its cache for the pods of many members, and a list of
//! 10,000 of them. [`crate::fleet_deliveries`] measures its watches.
//!
//! members that generate their pods, in this process ──► `flotilla serve` ──► requests below `/fleet`
//!
//! The arguments `--members=N` and `--pods=N` set the numbers of members, and of pods in each;
//! without them they are 100 and 20,000.

use std::time::Instant;

use anyhow::ensure;

use crate::arguments::{member_count, number_argument};
use crate::fleet_deliveries;
use crate::generated_fleet::{GeneratedFleet, PODS};
use crate::http_connection::BenchConnection;
use crate::measured_process::MIB;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};

const MEMBERS: usize = 100;
const PODS_PER_MEMBER: usize = 20_000;
const LISTED_PODS: usize = 10_000;
const LISTS: usize = 101;
/// 2 million pods in 8 GiB.
const MAX_BYTES_PER_POD: f64 = (8_u64 << 30) as f64 / 2e6;

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let members = member_count(MEMBERS)?;
    let pods_per_member = number_argument("--pods", PODS_PER_MEMBER)?;
    let pods = members * pods_per_member;
    ensure!(
        pods >= LISTED_PODS,
        "{pods} pods in all; {LISTED_PODS} are listed"
    );
    let fleet = GeneratedFleet::start(members, pods_per_member)?;
    let pod_bytes = measure_memory(report, &fleet)?;
    measure_list(report, &fleet)?;
    fleet_deliveries::run(report, &fleet, pod_bytes)?;
    fleet.process.stop()
}

/// Returns the bytes of a pod as it is served.
fn measure_memory(
    report: &mut MeasurementRecorder,
    fleet: &GeneratedFleet,
) -> anyhow::Result<usize> {
    let process = &fleet.process;
    // The control plane lists all pods once by itself, for the sums of what they request.
    fleet.wait_until_idle()?;
    process.reset_peak()?;
    let before = process.resident_bytes()?;
    let elapsed = fleet.fill()?.as_secs_f64();
    fleet.wait_until_idle()?;
    let members = fleet.members;
    let pods = (members * fleet.pods_per_member) as f64;
    let settled = (process.resident_bytes()? - before) / pods;
    let peak = (process.peak_resident_bytes()? - before) / pods;

    let mut connection = BenchConnection::open(&fleet.kubeconfig)?;
    let path = format!("{PODS}?limit={LISTED_PODS}");
    let (list_bytes, _) = connection.get_discarding_body(&path)?;
    let pod_bytes = list_bytes / LISTED_PODS;
    let setup = format!(
        "serve: each of {members} members with {} pods, of {pod_bytes} bytes as they are served, in Deployments with 1 to 20 replicas",
        fleet.pods_per_member
    );
    let limit = MeasurementLimit::Below(MAX_BYTES_PER_POD);
    report.record("fleet_view_memory", settled, "B/pod", limit, &setup);
    let none = MeasurementLimit::None;
    let ratio = settled / pod_bytes as f64;
    report.record("fleet_view_memory_ratio", ratio, "times", none, &setup);
    report.record("fleet_view_peak", peak, "B/pod", none, &setup);
    let total = settled * pods / MIB;
    report.record("fleet_view_memory_total", total, "MiB", none, &setup);
    let setup = "from the first read until the pods of all of them are cached";
    report.record("fleet_view_fill", elapsed, "s", none, setup);
    Ok(pod_bytes)
}

fn measure_list(report: &mut MeasurementRecorder, fleet: &GeneratedFleet) -> anyhow::Result<()> {
    let mut connection = BenchConnection::open(&fleet.kubeconfig)?;
    let path = format!("{PODS}?limit={LISTED_PODS}");
    connection.get_discarding_body(&path)?;
    fleet.wait_until_idle()?;
    let (mut times, mut length) = (Vec::new(), 0);
    let cpu = fleet.process.cpu_seconds()?;
    for _ in 0..LISTS {
        let start = Instant::now();
        (length, _) = connection.get_discarding_body(&path)?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let cpu = (fleet.process.cpu_seconds()? - cpu) / LISTS as f64 * 1000.0;
    ensure!(length > LISTED_PODS * 1024, "a list of {length} bytes");
    let setup = format!(
        "LIST of the first 10,000 pods of {} members in the fleet view, {:.0} MiB in JSON, by the administrator, TLS 1.3, HTTP/1.1, body discarded, {LISTS} times",
        fleet.members,
        length as f64 / MIB
    );
    let limit = MeasurementLimit::Below(100.0);
    report.record_percentiles("fleet_view_list", &mut times, "ms", limit, &setup);
    report.record(
        "fleet_view_list_cpu",
        cpu,
        "ms",
        MeasurementLimit::None,
        &setup,
    );
    Ok(())
}
