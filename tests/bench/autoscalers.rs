//! Measures what many FederatedHPAs cost that have nothing to change.
//!
//! 1,000 Deployments with a pod in each of two members ──► CPU of the control plane, without and with a
//! FederatedHPA for each of them

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::fleet::{CONDITION_TIMEOUT, MeasuredFleet, is_condition_true, items};
use crate::http_connection::BenchConnection;
use crate::measured_process::{MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::objects::{BINDINGS, DEPLOYMENTS, FEDERATED_HPAS, POLICIES, deployment, policy};

const AUTOSCALERS: usize = 1000;
const MEMBERS: usize = 2;
/// Of each member, for a pod of each Deployment.
const NODES: &str = "20";
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(300);
/// Four sync periods.
const OBSERVATION_TIME: Duration = Duration::from_secs(60);

/// The pods use half of what they request: nothing is scaled.
fn autoscaler(n: usize) -> String {
    let name = format!("web-{n}");
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    json!({
        "apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "minReplicas": 1, "maxReplicas": 4, "metrics": [metric],
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
        },
    })
    .to_string()
}

/// The CPU of a process, in cores.
fn cores(process: &MeasuredProcess) -> anyhow::Result<f64> {
    let before = process.cpu_seconds()?;
    std::thread::park_timeout(OBSERVATION_TIME);
    Ok((process.cpu_seconds()? - before) / OBSERVATION_TIME.as_secs_f64())
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let nodes = ["--nodes", NODES];
    let fleet = MeasuredFleet::start_with_members(MEMBERS, &nodes, MeasuredProcess::serve)?;
    let plane = &fleet.control_plane;
    let kubeconfig = plane.read_kubeconfig()?;
    let mut connection = BenchConnection::open(&kubeconfig)?;
    connection.post(POLICIES, &policy())?;
    let load = CreateLoadConfig {
        path: DEPLOYMENTS,
        count: AUTOSCALERS,
        connections: 16,
    };
    create_objects(&kubeconfig, &load, |n| deployment(&format!("web-{n}"), 1))?;
    wait_until("all bindings healthy", ROLLOUT_TIMEOUT, || {
        let list = connection.get(BINDINGS)?.json()?;
        let healthy = items(&list).filter(|binding| {
            let statuses = binding["status"]["aggregatedStatus"].as_array();
            let mut statuses = statuses.into_iter().flatten();
            let count = binding["spec"]["clusters"].as_array().map_or(0, Vec::len);
            count == MEMBERS
                && statuses
                    .by_ref()
                    .filter(|s| s["health"] == "Healthy")
                    .count()
                    == count
        });
        Ok(healthy.count() == AUTOSCALERS)
    })?;
    plane.wait_until_idle(CONDITION_TIMEOUT)?;
    let without = cores(plane)?;
    let load = CreateLoadConfig {
        path: FEDERATED_HPAS,
        ..load
    };
    create_objects(&kubeconfig, &load, autoscaler)?;
    wait_until("all calculated", ROLLOUT_TIMEOUT, || {
        let list = connection.get(FEDERATED_HPAS)?.json()?;
        let active = items(&list).filter(|hpa| is_condition_true(hpa, "ScalingActive"));
        Ok(active.count() == AUTOSCALERS)
    })?;
    let with = cores(plane)?;
    let list = connection.get(FEDERATED_HPAS)?.json()?;
    let active = items(&list).filter(|hpa| is_condition_true(hpa, "ScalingActive"));
    ensure!(active.count() == AUTOSCALERS, "some lost their metrics");
    let setup = "1,000 FederatedHPAs of Deployments with a pod in each of 2 members, every 15 s, over the same without them";
    let limit = MeasurementLimit::Below(0.1);
    report.record("autoscalers_cpu", with - without, "cores", limit, setup);
    let setup = "the same fleet without FederatedHPAs";
    let no_limit = MeasurementLimit::None;
    report.record("autoscalers_without", without, "cores", no_limit, setup);
    plane_memory(report, plane)
}

fn plane_memory(report: &mut MeasurementRecorder, plane: &MeasuredProcess) -> anyhow::Result<()> {
    let resident = plane.resident_bytes()? / crate::measured_process::MIB;
    let setup = "serve with 1,000 Deployments and FederatedHPAs in 2 members";
    let no_limit = MeasurementLimit::None;
    report.record("autoscalers_memory", resident, "MiB", no_limit, setup);
    Ok(())
}
