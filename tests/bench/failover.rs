//! Measures how soon 500 workloads of a lost member are replaced in another one.
//!
//! The eviction rate is set so high that it does not limit the measurement.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use crate::create::{Load, load};
use crate::figure::{Limit, Report};
use crate::fleet::Fleet;
use crate::objects::{CLUSTERS, DEPLOYMENTS, POLICIES, deployment};
use crate::process::Process;
use crate::seen::Watches;
use crate::wire::Connection;

const LOST: usize = 500;
const PATIENCE: Duration = Duration::from_secs(60);

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

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let mut fleet = Fleet::start(|dir| {
        Process::start(&[
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
    let to = fleet.plane.access()?;
    let mut connection = Connection::open(&to)?;
    connection.post(POLICIES, &policy())?;
    let many = Load {
        path: DEPLOYMENTS,
        count: LOST,
        connections: 8,
    };
    load(&to, &many, |n| deployment(&format!("lost-{n}"), 1))?;
    fleet.wait_applied(LOST)?;
    let used = fleet.plane.quiet(PATIENCE)?;

    let watches = Watches::open(&fleet.members[1..2], &[DEPLOYMENTS])?;
    // `kill -9`.
    drop(fleet.members.remove(0));
    let taint = json!({ "spec": { "taints": [{ "key": "lost", "effect": "NoExecute" }] } });
    let began = Instant::now();
    connection.patch(&format!("{CLUSTERS}/member1"), &taint.to_string())?;
    let mut there = HashSet::new();
    while there.len() < LOST {
        let seen = watches.seen.recv_timeout(PATIENCE);
        there.insert(
            seen.with_context(|| format!("{} of {LOST}", there.len()))?
                .name,
        );
    }
    let took = began.elapsed().as_secs_f64();
    let setup = "500 Deployments on a simulated member that is killed, in members that do not sync their writes: from its taint to the last replacement in another, rate of evictions opened up";
    report.tell("failover", took, "s", Limit::Below(2.0), setup);
    let cpu = fleet.plane.quiet(PATIENCE)? - used;
    report.tell("failover_cpu", cpu, "s", Limit::None, setup);
    drop(watches);
    Ok(())
}
