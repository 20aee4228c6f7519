//! Measures an agent with many Works, and a control plane with many members in pull mode.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;

use crate::fleet::{count_ready_clusters, create_deployments, is_condition_true, items};
use crate::http_connection::BenchConnection;
use crate::measured_process::{BINARY, MIB, MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{BINDINGS, CLUSTERS, POLICIES};

const PULL_MEMBERS: usize = 100;
const WORKS: usize = 200;
const READY_TIMEOUT: Duration = Duration::from_secs(240);
const STEADY_STATE: Duration = Duration::from_secs(30);
const AGENT_SECRET: &str = "/api/v1/namespaces/karmada-system/secrets/karmada-kubeconfig";

/// A member in pull mode and its agent.
struct PullMember {
    agent: MeasuredProcess,
    _member: MeasuredProcess,
}

/// A control plane with members in pull mode only; the processes end in this order.
struct PullFleet {
    members: Vec<PullMember>,
    control_plane: MeasuredProcess,
    _dir: TempDir,
}

fn run_command(arguments: &[&str]) -> anyhow::Result<String> {
    let out = Command::new(BINARY).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{}: {errors}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The words of the command that registers a member at the control plane.
fn register_command(control_plane: &MeasuredProcess) -> anyhow::Result<Vec<String>> {
    let kubeconfig = control_plane.kubeconfig.display().to_string();
    let create = ["token", "create", "--print-register-command"];
    let printed = run_command(&[&create[..], &["--kubeconfig", &kubeconfig]].concat())?;
    let command = printed.lines().find(|l| l.starts_with("flotilla register"));
    let words = command.context("no command to register")?.split(' ');
    Ok(words.skip(1).map(str::to_owned).collect())
}

impl PullMember {
    fn start(dir: &Path, name: &str, register: &[String]) -> anyhow::Result<Self> {
        let path = dir.join(name).display().to_string();
        let arguments = ["member", "--nodes", "1", "--listen", "127.0.0.1:0"];
        let member = MeasuredProcess::start(&[&arguments[..], &["--dir", &path]].concat())?;
        let kubeconfig = member.kubeconfig.display().to_string();
        let mut words: Vec<&str> = register.iter().map(String::as_str).collect();
        words.extend(["--kubeconfig", &kubeconfig, "--cluster-name", name]);
        run_command(&words)?;
        let mut connection = BenchConnection::open(&member.read_kubeconfig()?)?;
        let secret = connection.get(AGENT_SECRET)?.json()?;
        let data = secret["data"]["karmada-kubeconfig"].as_str();
        let own = dir.join(format!("{name}.kubeconfig"));
        std::fs::write(&own, STANDARD.decode(data.context("no kubeconfig")?)?)?;
        let own = format!("--karmada-kubeconfig={}", own.display());
        let of_member = format!("--kubeconfig={}", member.kubeconfig.display());
        let arguments = [
            "--cluster-name",
            name,
            &own,
            &of_member,
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ];
        let agent = MeasuredProcess::agent(&arguments)?;
        Ok(Self {
            agent,
            _member: member,
        })
    }
}

impl PullFleet {
    fn start(count: usize) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let control_plane = MeasuredProcess::serve(&dir.path().join("plane"))?;
        let mut members = Vec::new();
        for n in 1..=count {
            // A token registers one member.
            let register = register_command(&control_plane)?;
            members.push(PullMember::start(
                dir.path(),
                &format!("pull{n}"),
                &register,
            )?);
        }
        let fleet = Self {
            members,
            control_plane,
            _dir: dir,
        };
        let mut connection = fleet.connect()?;
        wait_until("all clusters ready", READY_TIMEOUT, || {
            Ok(count_ready_clusters(&mut connection)? == count)
        })?;
        wait_until("all tunnels open", READY_TIMEOUT, || {
            for n in 1..=count {
                let path = format!("{CLUSTERS}/pull{n}/proxy/api");
                if connection.get(&path)?.expect_code(200, &path).is_err() {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(fleet)
    }

    fn connect(&self) -> anyhow::Result<BenchConnection> {
        BenchConnection::open(&self.control_plane.read_kubeconfig()?)
    }

    /// Propagates this many Deployments to all members.
    fn propagate(&self, count: usize) -> anyhow::Result<()> {
        let mut connection = self.connect()?;
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": "all", "namespace": "default" },
            "spec": {
                "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment" }],
                "placement": { "clusterAffinity": {} },
            },
        });
        connection.post(POLICIES, &policy.to_string())?;
        create_deployments(&self.control_plane.read_kubeconfig()?, "works", count)?;
        wait_until("all bindings FullyApplied", READY_TIMEOUT, || {
            let list = connection.get(BINDINGS)?.json()?;
            let applied = items(&list).filter(|b| is_condition_true(b, "FullyApplied"));
            Ok(applied.count() >= count)
        })
    }
}

/// The CPU of a process over the steady state, in percent of a core.
fn steady_cpu(process: &MeasuredProcess) -> anyhow::Result<f64> {
    let before = process.cpu_seconds()?;
    std::thread::park_timeout(STEADY_STATE);
    Ok((process.cpu_seconds()? - before) / STEADY_STATE.as_secs_f64() * 100.0)
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let fleet = PullFleet::start(1)?;
    fleet.propagate(WORKS)?;
    let agent = &fleet.members[0].agent;
    let setup = "an agent with 200 Works of Deployments and a tunnel";
    let (cpu, memory) = (steady_cpu(agent)?, agent.resident_bytes()? / MIB);
    let limit = MeasurementLimit::Below(40.0);
    report.record("agent_memory", memory, "MiB", limit, setup);
    report.record(
        "agent_cpu",
        cpu,
        "% of a core",
        MeasurementLimit::None,
        setup,
    );
    drop(fleet);

    let fleet = PullFleet::start(PULL_MEMBERS)?;
    fleet.propagate(1)?;
    let control_plane = &fleet.control_plane;
    let setup = "a control plane with 100 members in pull mode, one Deployment in each";
    let (cpu, memory) = (
        steady_cpu(control_plane)?,
        control_plane.resident_bytes()? / MIB,
    );
    let limit = MeasurementLimit::Below(20.0);
    report.record("pull_members_cpu", cpu, "% of a core", limit, setup);
    let limit = MeasurementLimit::Below(300.0);
    report.record("pull_members_memory", memory, "MiB", limit, setup);
    Ok(())
}
