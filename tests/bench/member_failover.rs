//! Measures how soon 500 workloads of a lost member are replaced in another one.
//!
//! The eviction rate is set so high that it does not limit the measurement.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::fleet::MeasuredFleet;
use crate::http_connection::BenchConnection;
use crate::measured_process::MeasuredProcess;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;
use crate::objects::{CLUSTERS, DEPLOYMENTS, POLICIES, deployment};

const LOST_DEPLOYMENTS: usize = 500;
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// A policy that propagates every Deployment of the namespace to the first member, or else
/// to the second.
fn policy() -> String {
    let term = |name: &str| json!({ "affinityName": name, "clusterNames": [name] });
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": "all", "namespace": "default" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment" }],
            "placement": { "clusterAffinities": [term("member1"), term("member2")] },
        },
    })
    .to_string()
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let mut fleet = MeasuredFleet::start(|dir| {
        MeasuredProcess::start(&[
            "serve",
            "--data-dir",
            &dir.display().to_string(),
            "--listen",
            "127.0.0.1:0",
            "--feature-gates=Failover=true",
            "--enable-no-execute-taint-eviction",
            "--resource-eviction-rate=100000",
        ])
    })?;
    let kubeconfig = fleet.control_plane.read_kubeconfig()?;
    let mut connection = BenchConnection::open(&kubeconfig)?;
    connection.post(POLICIES, &policy())?;
    let many = CreateLoadConfig {
        path: DEPLOYMENTS,
        count: LOST_DEPLOYMENTS,
        connections: 8,
    };
    create_objects(&kubeconfig, &many, |n| deployment(&format!("lost-{n}"), 1))?;
    fleet.wait_applied(LOST_DEPLOYMENTS)?;
    let used = fleet.control_plane.wait_until_idle(ARRIVAL_TIMEOUT)?;

    let watches = MemberWatches::open(&fleet.members[1..2], &[DEPLOYMENTS])?;
    // `kill -9`.
    drop(fleet.members.remove(0));
    let taint = json!({ "spec": { "taints": [{ "key": "lost", "effect": "NoExecute" }] } });
    let start = Instant::now();
    connection.patch(&format!("{CLUSTERS}/member1"), &taint.to_string())?;
    let mut there = HashSet::new();
    while there.len() < LOST_DEPLOYMENTS {
        let observed = watches.observed.recv_timeout(ARRIVAL_TIMEOUT);
        there.insert(
            observed
                .with_context(|| format!("{} of {LOST_DEPLOYMENTS}", there.len()))?
                .name,
        );
    }
    let elapsed = start.elapsed().as_secs_f64();
    let setup = "500 Deployments on a simulated member that is killed, in members that do not sync their writes: from its taint to the last replacement in another, rate of evictions opened up";
    report.record(
        "failover",
        elapsed,
        "s",
        MeasurementLimit::Below(2.0),
        setup,
    );
    let cpu = fleet.control_plane.wait_until_idle(ARRIVAL_TIMEOUT)? - used;
    report.record("failover_cpu", cpu, "s", MeasurementLimit::None, setup);
    drop(watches);
    Ok(())
}
