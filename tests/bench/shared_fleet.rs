//! Measures on one fleet: single Deployments ([`crate::propagation_latency`]), the rollout of
//! many at once, memory, and a restart with all members in sync ([`crate::restart`]).
//!
//! Another fleet runs in aggregated mode ([`crate::aggregated_mode`]).

use std::time::Duration;

use crate::fleet::{
    CONDITION_TIMEOUT, MEMBERS, MeasuredFleet, ROLLOUT_DEPLOYMENTS, create_deployments,
};
use crate::http_connection::BenchConnection;
use crate::measured_process::{MIB, MeasuredProcess};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;
use crate::objects::{DEPLOYMENTS, POLICIES, policy};
use crate::{propagation_latency, restart};

const TOTAL_DEPLOYMENTS: usize = 1000;

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let fleet = MeasuredFleet::start(MeasuredProcess::serve)?;
    let kubeconfig = fleet.control_plane.read_kubeconfig()?;
    BenchConnection::open(&kubeconfig)?.post(POLICIES, &policy())?;
    fleet
        .control_plane
        .wait_until_idle(Duration::from_secs(10))?;

    let watches = MemberWatches::open(&fleet.members, &[DEPLOYMENTS])?;
    let single = propagation_latency::run(report, &fleet, &watches)?;
    measure_rollout(report, &fleet, &watches, single)?;
    drop(watches);

    let watches = MemberWatches::open(&fleet.members, &[DEPLOYMENTS])?;
    let more = TOTAL_DEPLOYMENTS - ROLLOUT_DEPLOYMENTS - single;
    create_deployments(&kubeconfig, "more", more)?;
    watches.wait_for_all("more", more * MEMBERS)?;
    drop(watches);
    fleet.wait_applied(TOTAL_DEPLOYMENTS)?;
    fleet.control_plane.wait_until_idle(CONDITION_TIMEOUT)?;
    let setup = "serve with 1,000 Deployments in 3 members, all FullyApplied and quiet";
    let resident = fleet.control_plane.resident_bytes()? / MIB;
    report.record(
        "fleet_memory",
        resident,
        "MiB",
        MeasurementLimit::Below(150.0),
        setup,
    );
    restart::run(report, fleet)
}

fn measure_rollout(
    report: &mut MeasurementRecorder,
    fleet: &MeasuredFleet,
    watches: &MemberWatches,
    before: usize,
) -> anyhow::Result<()> {
    let roll_out = fleet.roll_out(watches, before)?;
    let setup = "300 Deployments to 3 simulated members in processes of their own, which do not sync their writes as real ones do, 16 creators";
    report.record(
        "fleet_rate",
        roll_out.rate,
        "1/s",
        MeasurementLimit::AtLeast(500.0),
        setup,
    );
    report.record(
        "fleet_accepted",
        roll_out.accepted,
        "s",
        MeasurementLimit::None,
        setup,
    );
    report.record(
        "fleet_applied",
        roll_out.applied,
        "s",
        MeasurementLimit::None,
        setup,
    );
    let setup = "the same, from the first POST until the control plane is quiet, events included";
    report.record(
        "fleet_cpu",
        roll_out.cpu,
        "s",
        MeasurementLimit::Below(1.5),
        setup,
    );
    Ok(())
}
