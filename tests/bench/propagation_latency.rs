//! Measures the propagation latency of single Deployments in an idle control plane: until the
//! last member has the Deployment, and until the last member has its new image.

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::fleet::{MEMBERS, MeasuredFleet};
use crate::http_connection::BenchConnection;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;
use crate::objects::{DEPLOYMENTS, deployment};

const ROUNDS: usize = 101;
/// The pause between rounds, in which pods get ready and their status comes back.
const ROUND_PAUSE: Duration = Duration::from_millis(400);
const PROPAGATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints both measurements; returns the number of Deployments left behind.
pub(crate) fn run(
    report: &mut MeasurementRecorder,
    fleet: &MeasuredFleet,
    watches: &MemberWatches,
) -> anyhow::Result<usize> {
    let mut connection = BenchConnection::open(&fleet.control_plane.read_kubeconfig()?)?;
    let (mut creates, mut changes) = (Vec::new(), Vec::new());
    for n in 0..ROUNDS {
        let name = format!("single-{n}");
        let start = Instant::now();
        connection.post(DEPLOYMENTS, &deployment(&name, 2))?;
        creates.push(wait_for_all_members(watches, &name, "nginx:1.25", start)?);
        std::thread::park_timeout(ROUND_PAUSE);
        let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"nginx:1.26"}]}}}}"#;
        let start = Instant::now();
        connection.patch(&format!("{DEPLOYMENTS}/{name}"), patch)?;
        changes.push(wait_for_all_members(watches, &name, "nginx:1.26", start)?);
        std::thread::park_timeout(ROUND_PAUSE);
    }
    let setup = format!(
        "one Deployment to 3 members that do not sync their writes, idle, from the request to the last member's watch, {ROUNDS} times"
    );
    for (name, values) in [("flow_create", &mut creates), ("flow_image", &mut changes)] {
        report.record_percentiles(name, values, "ms", MeasurementLimit::Below(20.0), &setup);
    }
    Ok(ROUNDS)
}

/// Milliseconds until every member had `name` with `image`.
fn wait_for_all_members(
    watches: &MemberWatches,
    name: &str,
    image: &str,
    start: Instant,
) -> anyhow::Result<f64> {
    let mut there = [false; MEMBERS];
    loop {
        let observed = watches
            .observed
            .recv_timeout(PROPAGATION_TIMEOUT)
            .with_context(|| format!("{name} with {image} did not reach every member"))?;
        if observed.name == name && observed.image == image {
            there[observed.member] = true;
            if there.iter().all(|t| *t) {
                return Ok(observed.at.duration_since(start).as_secs_f64() * 1000.0);
            }
        }
    }
}
