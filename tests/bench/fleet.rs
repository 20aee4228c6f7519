//! A control plane and simulated members in separate processes, and the rollout of many
//! Deployments to them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use tempfile::TempDir;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{self, MeasuredProcess, wait_until};
use crate::member_watches::MemberWatches;
use crate::objects::{BINDINGS, CLUSTERS, DEPLOYMENTS, deployment};

pub(crate) const MEMBERS: usize = 3;
pub(crate) const ROLLOUT_DEPLOYMENTS: usize = 300;
pub(crate) const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

/// The processes, dropped in this order.
pub(crate) struct MeasuredFleet {
    pub(crate) control_plane: MeasuredProcess,
    pub(crate) members: Vec<MeasuredProcess>,
    pub(crate) dir: TempDir,
}

impl MeasuredFleet {
    /// Starts three members; `plane` starts the control plane with its data in the directory
    /// passed to it.
    pub(crate) fn start(
        plane: impl FnOnce(&Path) -> anyhow::Result<MeasuredProcess>,
    ) -> anyhow::Result<Self> {
        Self::start_with_members(MEMBERS, &[], plane)
    }

    /// Starts `count` members with additional arguments.
    pub(crate) fn start_with_members(
        count: usize,
        more: &[&str],
        plane: impl FnOnce(&Path) -> anyhow::Result<MeasuredProcess>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let plane = plane(&dir.path().join("plane"))?;
        let mut members = Vec::new();
        for n in 1..=count {
            let path = dir.path().join(format!("member{n}")).display().to_string();
            let arguments = ["member", "--dir", &path, "--listen", "127.0.0.1:0"];
            members.push(MeasuredProcess::start(&[&arguments, more].concat())?);
        }
        let fleet = Self {
            control_plane: plane,
            members,
            dir,
        };
        for (n, member) in fleet.members.iter().enumerate() {
            fleet.join(&format!("member{}", n + 1), member)?;
        }
        fleet.wait_ready()?;
        Ok(fleet)
    }

    pub(crate) fn join(&self, name: &str, member: &MeasuredProcess) -> anyhow::Result<()> {
        self.run_with_member("join", name, member)
    }

    pub(crate) fn unjoin(&self, name: &str, member: &MeasuredProcess) -> anyhow::Result<()> {
        self.run_with_member("unjoin", name, member)
    }

    fn run_with_member(
        &self,
        command: &str,
        name: &str,
        member: &MeasuredProcess,
    ) -> anyhow::Result<()> {
        let out = std::process::Command::new(measured_process::BINARY)
            .args([command, name, "--cluster-kubeconfig"])
            .arg(&member.kubeconfig)
            .arg("--kubeconfig")
            .arg(&self.control_plane.kubeconfig)
            .output()?;
        let errors = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "{command} {name}: {errors}");
        Ok(())
    }

    /// Waits until every Cluster is Ready and reports its API enablements.
    pub(crate) fn wait_ready(&self) -> anyhow::Result<()> {
        let mut connection = BenchConnection::open(&self.control_plane.read_kubeconfig()?)?;
        wait_until("all clusters ready", CONDITION_TIMEOUT, || {
            Ok(count_ready_clusters(&mut connection)? == self.members.len())
        })
    }

    /// Waits until `count` bindings are FullyApplied.
    pub(crate) fn wait_applied(&self, count: usize) -> anyhow::Result<()> {
        let mut connection = BenchConnection::open(&self.control_plane.read_kubeconfig()?)?;
        wait_until("all bindings FullyApplied", CONDITION_TIMEOUT, || {
            let list = connection.get(BINDINGS)?.json()?;
            Ok(items(&list)
                .filter(|b| is_condition_true(b, "FullyApplied"))
                .count()
                >= count)
        })
    }

    /// Creates [`ROLLOUT_DEPLOYMENTS`] Deployments in addition to the `before` existing ones.
    pub(crate) fn roll_out(
        &self,
        watches: &MemberWatches,
        before: usize,
    ) -> anyhow::Result<RolloutMeasurement> {
        let kubeconfig = self.control_plane.read_kubeconfig()?;
        let used = self.control_plane.wait_until_idle(CONDITION_TIMEOUT)?;
        let start = Instant::now();
        create_deployments(&kubeconfig, "few", ROLLOUT_DEPLOYMENTS)?;
        let accepted = start.elapsed().as_secs_f64();
        let last = watches
            .wait_for_all("few", ROLLOUT_DEPLOYMENTS * MEMBERS)?
            .duration_since(start)
            .as_secs_f64();
        self.wait_applied(before + ROLLOUT_DEPLOYMENTS)?;
        Ok(RolloutMeasurement {
            rate: (ROLLOUT_DEPLOYMENTS * MEMBERS) as f64 / last,
            accepted,
            applied: start.elapsed().as_secs_f64(),
            cpu: self.control_plane.wait_until_idle(CONDITION_TIMEOUT)? - used,
        })
    }
}

/// The measurements of a rollout of many Deployments to every member.
pub(crate) struct RolloutMeasurement {
    /// Objects in members per second.
    pub(crate) rate: f64,
    /// Seconds until all were created, and until all bindings were FullyApplied.
    pub(crate) accepted: f64,
    pub(crate) applied: f64,
    /// CPU seconds of the control plane until it was idle.
    pub(crate) cpu: f64,
}

/// The number of Clusters that are Ready and report their API enablements.
pub(crate) fn count_ready_clusters(connection: &mut BenchConnection) -> anyhow::Result<usize> {
    let list = connection.get(CLUSTERS)?.json()?;
    let ready = items(&list).filter(|c| {
        let served = c["status"]["apiEnablements"].as_array();
        is_condition_true(c, "Ready") && served.is_some_and(|s| !s.is_empty())
    });
    Ok(ready.count())
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

pub(crate) fn is_condition_true(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == kind && c["status"] == "True")
}

pub(crate) fn create_deployments(
    kubeconfig: &Kubeconfig,
    prefix: &str,
    count: usize,
) -> anyhow::Result<()> {
    let of = CreateLoadConfig {
        path: DEPLOYMENTS,
        count,
        connections: 16,
    };
    create_objects(kubeconfig, &of, |n| {
        deployment(&format!("{prefix}-{n}"), 1 + n as u32 % 2)
    })
    .map(drop)
}
