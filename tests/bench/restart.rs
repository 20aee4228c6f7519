//! Restarts a control plane whose members are in sync: measures how soon it serves, and
//! checks that it writes nothing to any member.

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::fleet::{MeasuredFleet, items};
use crate::http_connection::BenchConnection;
use crate::measured_process::MeasuredProcess;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::DEPLOYMENTS;

/// Long enough for every informer to sync and every key to be reconciled.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long writes to members are counted.
const OBSERVATION_TIME: Duration = Duration::from_secs(10);

pub(crate) fn run(report: &mut MeasurementRecorder, fleet: MeasuredFleet) -> anyhow::Result<()> {
    let before = member_write_state(&fleet.members)?;
    let MeasuredFleet {
        control_plane: plane,
        members,
        dir,
    } = fleet;
    plane.stop()?;
    let plane = MeasuredProcess::serve(&dir.path().join("plane"))?;
    let elapsed = plane.startup_time.as_secs_f64();
    let fleet = MeasuredFleet {
        control_plane: plane,
        members,
        dir,
    };
    fleet.wait_ready()?;
    let ready = Instant::now();
    let cpu = fleet.control_plane.wait_until_idle(IDLE_TIMEOUT)?;
    // Late writes count, too.
    while let Some(rest) = OBSERVATION_TIME.checked_sub(ready.elapsed()) {
        std::thread::park_timeout(rest);
    }
    let after = member_write_state(&fleet.members)?;
    let setup = "serve restarted with 1,000 Deployments in step in 3 members";
    report.record(
        "restart_ready",
        elapsed,
        "s",
        MeasurementLimit::Below(1.0),
        setup,
    );
    report.record("restart_cpu", cpu, "s", MeasurementLimit::None, setup);
    let setup = "the same, in at least 10 s after all clusters are ready and until it is quiet";
    let writes = after.write_requests - before.write_requests;
    report.record(
        "restart_writes",
        writes,
        "requests",
        MeasurementLimit::Below(1.0),
        setup,
    );
    let changed = before
        .versions
        .iter()
        .zip(&after.versions)
        .filter(|(a, b)| a != b)
        .count();
    report.record(
        "restart_changed",
        changed as f64,
        "objects",
        MeasurementLimit::Below(1.0),
        setup,
    );
    Ok(())
}

/// The state of the members that shows whether a write happened.
struct MemberWriteState {
    /// The mutating requests that all members have served over the network.
    write_requests: f64,
    /// Name and resourceVersion of every Deployment, in the order of the lists.
    versions: Vec<String>,
}

fn member_write_state(members: &[MeasuredProcess]) -> anyhow::Result<MemberWriteState> {
    let mut state = MemberWriteState {
        write_requests: 0.0,
        versions: Vec::new(),
    };
    for member in members {
        let mut connection = BenchConnection::open(&member.read_kubeconfig()?)?;
        let metrics = connection.get("/metrics")?.expect_code(200, "/metrics")?;
        for line in String::from_utf8_lossy(&metrics.body).lines() {
            let Some(series) = line.strip_prefix("apiserver_request_total{") else {
                continue;
            };
            let reads = ["GET", "LIST", "WATCH", "CONNECT"];
            if reads
                .iter()
                .any(|v| series.contains(&format!("verb=\"{v}\"")))
            {
                continue;
            }
            let value = series.rsplit(' ').next().context("a metric's value")?;
            state.write_requests += value.parse::<f64>()?;
        }
        let list = connection.get(DEPLOYMENTS)?.json()?;
        state.versions.extend(items(&list).map(|d| {
            let metadata = &d["metadata"];
            format!("{}@{}", metadata["name"], metadata["resourceVersion"])
        }));
    }
    Ok(state)
}
