//! Measures what `managedFields` cost the controllers: the propagation of Deployments that have
//! managers, and of Deployments whose managers were removed, which no longer are tracked.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::fleet::{CONDITION_TIMEOUT, MEMBERS, MeasuredFleet};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::MeasuredProcess;
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;
use crate::objects::{DEPLOYMENTS, POLICIES, deployment};

const OBJECTS: usize = 200;
const ROUNDS: usize = 8;
/// The highest cost of a propagation of managed objects, in propagations of unmanaged ones.
const MAX_COST: f64 = 1.1;
/// The label by which the policy of a round selects its Deployments.
const ROUND_LABEL: &str = "round";

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let fleet = MeasuredFleet::start(MeasuredProcess::serve)?;
    let administrator = fleet.control_plane.read_kubeconfig()?;
    let watches = MemberWatches::open(&fleet.members, &[DEPLOYMENTS])?;
    let mut cpu = [0.0; 2];
    // The first round warms up.
    for round in 0..=ROUNDS {
        // Each kind is the first in every second round, so that growth affects both alike.
        for turn in 0..2 {
            let kind = (turn + round) % 2;
            let name = format!("{}-{round}", ["managed", "unmanaged"][kind]);
            create_deployments(&administrator, &name)?;
            if kind == 1 {
                remove_managers(&administrator, &name)?;
            }
            let used = propagate(&fleet, &administrator, &watches, &name)?;
            if round > 0 {
                cpu[kind] += used;
            }
        }
    }
    let [managed, unmanaged] = cpu.map(|seconds| seconds / (OBJECTS * ROUNDS) as f64 * 1000.0);
    let setup =
        "200 Deployments of 1 KiB at once to 3 simulated members, until the control plane is quiet";
    let no_limit = MeasurementLimit::None;
    report.record("propagate_managed_cpu", managed, "ms", no_limit, setup);
    report.record("propagate_unmanaged_cpu", unmanaged, "ms", no_limit, setup);
    let limit = MeasurementLimit::Below(MAX_COST);
    let cost = managed / unmanaged;
    report.record("controllers_managed_fields_cost", cost, "", limit, setup);
    drop(watches);
    fleet.control_plane.stop()
}

fn create_deployments(administrator: &Kubeconfig, name: &str) -> anyhow::Result<()> {
    let load = CreateLoadConfig {
        path: DEPLOYMENTS,
        count: OBJECTS,
        connections: 4,
    };
    create_objects(administrator, &load, |n| {
        let body = deployment(&format!("{name}-{n}"), 1);
        let label = format!(r#""labels":{{"{ROUND_LABEL}":"{name}","#);
        body.replacen(r#""labels":{"#, &label, 1)
    })
    .map(drop)
}

fn remove_managers(administrator: &Kubeconfig, name: &str) -> anyhow::Result<()> {
    let mut connection = BenchConnection::open(administrator)?;
    for n in 0..OBJECTS {
        let path = format!("{DEPLOYMENTS}/{name}-{n}");
        let reset = r#"{"metadata":{"managedFields":[]}}"#;
        connection.patch(&path, reset)?;
    }
    Ok(())
}

/// The CPU seconds of the control plane from the creation of the policy until it is quiet.
fn propagate(
    fleet: &MeasuredFleet,
    administrator: &Kubeconfig,
    watches: &MemberWatches,
    name: &str,
) -> anyhow::Result<f64> {
    let mut connection = BenchConnection::open(administrator)?;
    let before = fleet.control_plane.wait_until_idle(CONDITION_TIMEOUT)?;
    connection.post(POLICIES, &policy(name).to_string())?;
    watches.wait_for_all(&format!("{name}-"), OBJECTS * MEMBERS)?;
    let used = fleet.control_plane.wait_until_idle(CONDITION_TIMEOUT)? - before;
    let path = format!("{DEPLOYMENTS}/{name}-0");
    let first = connection.get(&path)?.json()?;
    let is_managed = first["metadata"]["managedFields"].is_array();
    let expected = !name.starts_with("un");
    ensure!(is_managed == expected, "{path}: managed: {is_managed}");
    let ready = first["status"]["readyReplicas"].as_u64();
    ready.context("no status from the members").map(|_| used)
}

fn policy(name: &str) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment",
                "labelSelector": { "matchLabels": { ROUND_LABEL: name } } }],
            "placement": { "replicaScheduling": { "replicaSchedulingType": "Duplicated" } },
        },
    })
}
