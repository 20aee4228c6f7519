//! Runs a control plane and simulated members in separate processes, and measures the
//! rollout of many Deployments.
//!
//! One fleet serves three measurements: single Deployments ([`crate::propagation_latency`]),
//! many at once (here), and a restart with all members in sync ([`crate::restart`]). Another
//! fleet runs in aggregated mode ([`crate::aggregated_mode`]).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use tempfile::TempDir;

use crate::create::{Load, load};
use crate::figure::{Limit, Report};
use crate::kubeconfig::Kubeconfig;
use crate::objects::{BINDINGS, CLUSTERS, DEPLOYMENTS, POLICIES, deployment, policy};
use crate::process::{self, MIB, Process, until};
use crate::seen::Watches;
use crate::wire::Connection;
use crate::{flow, restart};

pub(crate) const MEMBERS: usize = 3;
const FEW: usize = 300;
const MANY: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The processes, dropped in this order.
pub(crate) struct Fleet {
    pub(crate) plane: Process,
    pub(crate) members: Vec<Process>,
    pub(crate) dir: TempDir,
}

impl Fleet {
    /// Starts three members; `plane` starts the control plane with its data in the directory
    /// passed to it.
    pub(crate) fn start(
        plane: impl FnOnce(&Path) -> anyhow::Result<Process>,
    ) -> anyhow::Result<Self> {
        Self::of(MEMBERS, &[], plane)
    }

    /// Starts `count` members with additional arguments.
    pub(crate) fn of(
        count: usize,
        more: &[&str],
        plane: impl FnOnce(&Path) -> anyhow::Result<Process>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let plane = plane(&dir.path().join("plane"))?;
        let mut members = Vec::new();
        for n in 1..=count {
            let path = dir.path().join(format!("member{n}")).display().to_string();
            let arguments = ["member", "--dir", &path, "--listen", "127.0.0.1:0"];
            members.push(Process::start(&[&arguments, more].concat())?);
        }
        let fleet = Self {
            plane,
            members,
            dir,
        };
        for (n, member) in fleet.members.iter().enumerate() {
            fleet.join(&format!("member{}", n + 1), member)?;
        }
        fleet.wait_ready()?;
        Ok(fleet)
    }

    fn join(&self, name: &str, member: &Process) -> anyhow::Result<()> {
        let out = std::process::Command::new(process::BINARY)
            .args(["join", name, "--cluster-kubeconfig"])
            .arg(&member.kubeconfig)
            .arg("--kubeconfig")
            .arg(&self.plane.kubeconfig)
            .output()?;
        let errors = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "join {name}: {errors}");
        Ok(())
    }

    /// Waits until every Cluster is Ready and reports its API enablements.
    pub(crate) fn wait_ready(&self) -> anyhow::Result<()> {
        let mut connection = Connection::open(&self.plane.access()?)?;
        until("all clusters ready", PATIENCE, || {
            Ok(ready(&mut connection)? == self.members.len())
        })
    }

    /// Waits until `count` bindings are FullyApplied.
    pub(crate) fn wait_applied(&self, count: usize) -> anyhow::Result<()> {
        let mut connection = Connection::open(&self.plane.access()?)?;
        until("all bindings FullyApplied", PATIENCE, || {
            let list = connection.get(BINDINGS)?.json()?;
            Ok(items(&list)
                .filter(|b| condition(b, "FullyApplied"))
                .count()
                >= count)
        })
    }

    /// Creates [`ROLLOUT_DEPLOYMENTS`] Deployments in addition to the `before` existing ones.
    pub(crate) fn roll_out(&self, watches: &Watches, before: usize) -> anyhow::Result<RollOut> {
        let to = self.plane.access()?;
        let used = self.plane.quiet(PATIENCE)?;
        let began = Instant::now();
        create(&to, "few", FEW)?;
        let accepted = began.elapsed().as_secs_f64();
        let last = watches
            .all("few", FEW * MEMBERS)?
            .duration_since(began)
            .as_secs_f64();
        self.wait_applied(before + FEW)?;
        Ok(RollOut {
            rate: (FEW * MEMBERS) as f64 / last,
            accepted,
            applied: began.elapsed().as_secs_f64(),
            cpu: self.plane.quiet(PATIENCE)? - used,
        })
    }
}

/// The measurements of a rollout of many Deployments to every member.
pub(crate) struct RollOut {
    /// Objects in members per second.
    pub(crate) rate: f64,
    /// Seconds until all were created, and until all bindings were FullyApplied.
    pub(crate) accepted: f64,
    pub(crate) applied: f64,
    /// CPU seconds of the control plane until it was idle.
    pub(crate) cpu: f64,
}

/// The number of Clusters that are Ready and report their API enablements.
pub(crate) fn ready(connection: &mut Connection) -> anyhow::Result<usize> {
    let list = connection.get(CLUSTERS)?.json()?;
    let ready = items(&list).filter(|c| {
        let served = c["status"]["apiEnablements"].as_array();
        condition(c, "Ready") && served.is_some_and(|s| !s.is_empty())
    });
    Ok(ready.count())
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

pub(crate) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == kind && c["status"] == "True")
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let fleet = Fleet::start(Process::serve)?;
    let to = fleet.plane.access()?;
    Connection::open(&to)?.post(POLICIES, &policy())?;
    fleet.plane.quiet(Duration::from_secs(10))?;

    let watches = Watches::open(&fleet.members, &[DEPLOYMENTS])?;
    let single = flow::run(report, &fleet, &watches)?;
    few(report, &fleet, &watches, single)?;
    drop(watches);

    let watches = Watches::open(&fleet.members, &[DEPLOYMENTS])?;
    let more = MANY - FEW - single;
    create(&to, "more", more)?;
    watches.all("more", more * MEMBERS)?;
    drop(watches);
    fleet.wait_applied(MANY)?;
    fleet.plane.quiet(PATIENCE)?;
    let setup = "serve with 1,000 Deployments in 3 members, all FullyApplied and quiet";
    let resident = fleet.plane.resident()? / MIB;
    report.tell("fleet_memory", resident, "MiB", Limit::Below(150.0), setup);
    restart::run(report, fleet)
}

fn create(to: &Kubeconfig, prefix: &str, count: usize) -> anyhow::Result<()> {
    let of = Load {
        path: DEPLOYMENTS,
        count,
        connections: 16,
    };
    load(to, &of, |n| {
        deployment(&format!("{prefix}-{n}"), 1 + n as u32 % 2)
    })
    .map(drop)
}

fn few(report: &mut Report, fleet: &Fleet, watches: &Watches, before: usize) -> anyhow::Result<()> {
    let roll_out = fleet.roll_out(watches, before)?;
    let setup = "300 Deployments to 3 simulated members in processes of their own, which do not sync their writes as real ones do, 16 creators";
    report.tell(
        "fleet_rate",
        roll_out.rate,
        "1/s",
        Limit::AtLeast(500.0),
        setup,
    );
    report.tell("fleet_accepted", roll_out.accepted, "s", Limit::None, setup);
    report.tell("fleet_applied", roll_out.applied, "s", Limit::None, setup);
    let setup = "the same, from the first POST until the control plane is quiet, events included";
    report.tell("fleet_cpu", roll_out.cpu, "s", Limit::Below(1.5), setup);
    Ok(())
}
