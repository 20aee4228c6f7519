//! Measures what a member with many nodes and pods costs in the memory of a control plane.
//!
//! The objects lie in the member before it joins, so that the control plane lists them all. The
//! control plane already has an empty member: the difference is the cost of one more member with
//! these nodes and pods.

use std::time::Duration;

use serde_json::json;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::fleet::MeasuredFleet;
use crate::http_connection::BenchConnection;
use crate::measured_process::{MIB, MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::CLUSTERS;

const PODS: usize = 100_000;
const PODS_PER_NODE: usize = 20;
const NODES: usize = PODS / PODS_PER_NODE;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
const MEMORY_READINGS: u32 = 5;
/// The objects of these members are only stored: no kubelet writes to them.
const STORED_ONLY: [&str; 4] = ["--nodes", "0", "--workloads", "false"];

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("large").display().to_string();
    let arguments = ["member", "--dir", &path, "--listen", "127.0.0.1:0"];
    let member = MeasuredProcess::start(&[&arguments[..], &STORED_ONLY].concat())?;
    fill(&member)?;
    let variants = [
        ("large_member", "serve", &[][..]),
        (
            "large_member_estimator",
            "serve --enable-scheduler-estimator, which keeps individual nodes",
            &["--enable-scheduler-estimator"][..],
        ),
    ];
    for (name, command, flags) in variants {
        let cost = measure_cost(&member, flags)?;
        let setup = format!(
            "{command}: one more member, with {NODES} nodes and {PODS} pods, over an empty one"
        );
        let limit = MeasurementLimit::Below(40.0);
        report.record(
            &format!("{name}_memory"),
            cost.settled / MIB,
            "MiB",
            limit,
            &setup,
        );
        let (name, limit) = (format!("{name}_peak"), MeasurementLimit::None);
        report.record(&name, cost.peak / MIB, "MiB", limit, &setup);
    }
    member.stop()
}

/// By how many bytes the resident memory of a control plane rises.
struct MemoryCost {
    /// When it is idle again.
    settled: f64,
    /// At most, while it lists.
    peak: f64,
}

fn measure_cost(member: &MeasuredProcess, flags: &[&str]) -> anyhow::Result<MemoryCost> {
    let fleet = MeasuredFleet::start_with_members(1, &STORED_ONLY, |dir| {
        let dir = dir.display().to_string();
        let serve = ["serve", "--data-dir", &dir, "--listen", "127.0.0.1:0"];
        MeasuredProcess::start(&[&serve, flags].concat())
    })?;
    let control_plane = &fleet.control_plane;
    let before = settled_resident_bytes(control_plane)?;
    control_plane.reset_peak()?;
    fleet.join("large", member)?;
    let mut connection = BenchConnection::open(&control_plane.read_kubeconfig()?)?;
    let path = format!("{CLUSTERS}/large");
    let allocated = format!("{}k", PODS / 1000);
    wait_until("the totals of the member", SETTLE_TIMEOUT, || {
        let status = &connection.get(&path)?.json()?["status"];
        Ok(status["nodeSummary"]["totalNum"] == NODES
            && status["resourceSummary"]["allocated"]["pods"] == allocated)
    })?;
    let cost = MemoryCost {
        settled: settled_resident_bytes(control_plane)? - before,
        peak: control_plane.peak_resident_bytes()? - before,
    };
    // A member refuses to be joined by two control planes at once.
    fleet.unjoin("large", member)?;
    Ok(cost)
}

/// The least of some readings of an idle process.
fn settled_resident_bytes(process: &MeasuredProcess) -> anyhow::Result<f64> {
    process.wait_until_idle(SETTLE_TIMEOUT)?;
    let mut least = f64::INFINITY;
    for _ in 0..MEMORY_READINGS {
        least = least.min(process.resident_bytes()?);
        std::thread::park_timeout(Duration::from_secs(2));
    }
    Ok(least)
}

/// Writes the nodes and pods.
fn fill(member: &MeasuredProcess) -> anyhow::Result<()> {
    let kubeconfig = member.read_kubeconfig()?;
    let nodes = CreateLoadConfig {
        path: "/api/v1/nodes",
        count: NODES,
        connections: 8,
    };
    create_objects(&kubeconfig, &nodes, node)?;
    let pods = CreateLoadConfig {
        path: "/api/v1/namespaces/default/pods",
        count: PODS,
        ..nodes
    };
    create_objects(&kubeconfig, &pods, pod).map(drop)
}

fn node(n: usize) -> String {
    let name = format!("node-{n}.zone-{}.example.com", n % 3);
    let offer =
        json!({ "cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m5.16xlarge",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": format!("zone-{}", n % 3),
        } },
        "status": {
            "capacity": offer, "allocatable": offer,
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
    .to_string()
}

/// A pod of one of 500 Deployments, on the node that follows from its number.
fn pod(n: usize) -> String {
    let app = format!("service-{}", n % 500);
    let node = n / PODS_PER_NODE;
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{app}-5d8f7c9b6d-{n:05x}"), "namespace": "default",
            "labels": { "app": app, "pod-template-hash": "5d8f7c9b6d" },
        },
        "spec": {
            "nodeName": format!("node-{node}.zone-{}.example.com", node % 3),
            "containers": [{
                "name": "main", "image": "registry.example.com/services/main:1.25.3",
                "ports": [{ "containerPort": 8080 }],
                "env": [{ "name": "MODE", "value": "production" }],
                "resources": {
                    "requests": { "cpu": format!("{}m", 100 + n % 500), "memory": "256Mi" },
                },
            }],
        },
    })
    .to_string()
}
