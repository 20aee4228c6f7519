//! Measures a cold start like the one that Karmada publishes: many Deployments were created
//! while no controllers ran, each with a policy and a ConfigMap as its dependency, for two
//! members without workload controllers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use crate::create_rate::{CreateLoadConfig, create_objects};
use crate::fleet::{MeasuredFleet, is_condition_true, items};
use crate::http_connection::BenchConnection;
use crate::kubeconfig::Kubeconfig;
use crate::measured_process::{MIB, MeasuredProcess};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;
use crate::objects::{
    BINDINGS, CONFIGMAPS, DEPLOYMENTS, POLICIES, configmap, deployment_with_config_map,
};

/// The number of Deployments, of policies and of ConfigMaps.
const OBJECTS_PER_KIND: usize = 5000;
const MEMBERS: usize = 2;
const PREFIX: &str = "cold";
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let MeasuredFleet {
        control_plane: plane,
        members,
        dir,
    } = MeasuredFleet::start_with_members(MEMBERS, &["--workloads=false"], MeasuredProcess::serve)?;
    let data = dir.path().join("plane");
    let before = create_without_controllers(plane, &data)?;

    let watches = MemberWatches::open(&members, &[DEPLOYMENTS, CONFIGMAPS])?;
    let start = Instant::now();
    let plane = MeasuredProcess::serve(&data)?;
    let objects = 2 * OBJECTS_PER_KIND * MEMBERS;
    let last = watches.wait_for_all(PREFIX, objects)?;
    let elapsed = last.duration_since(start).as_secs_f64();
    let cpu = plane.wait_until_idle(IDLE_TIMEOUT)?;
    let (peak, resident) = (
        plane.peak_resident_bytes()? / MIB,
        plane.resident_bytes()? / MIB,
    );
    let applied = count_applied_bindings(&plane.read_kubeconfig()?)?;
    ensure!(
        applied == 2 * OBJECTS_PER_KIND,
        "{applied} bindings are FullyApplied"
    );

    let setup = "5,000 Deployments, each with a policy and a ConfigMap as its dependency, created while no controllers ran, to 2 members without workload controllers, which do not sync their writes: from the start of serve to the last of 20,000 objects (Karmada v1.14: 240 s)";
    report.record(
        "cold_applied",
        elapsed,
        "s",
        MeasurementLimit::Below(30.0),
        setup,
    );
    let rate = objects as f64 / elapsed;
    report.record("cold_rate", rate, "1/s", MeasurementLimit::None, setup);
    let setup = "the same, until all status is written and the control plane is idle";
    report.record("cold_cpu", cpu, "s", MeasurementLimit::None, setup);
    report.record(
        "cold_peak",
        peak,
        "MiB",
        MeasurementLimit::Below(400.0),
        setup,
    );
    report.record(
        "cold_memory",
        resident,
        "MiB",
        MeasurementLimit::None,
        setup,
    );
    let setup = "peak of resident memory while all objects were created, no controllers";
    report.record(
        "cold_create_peak",
        before / MIB,
        "MiB",
        MeasurementLimit::None,
        setup,
    );
    Ok(())
}

/// Restarts the control plane with the controllers' lease held by another identity, creates
/// all objects, and stops it. Returns its peak of resident memory.
fn create_without_controllers(plane: MeasuredProcess, data: &Path) -> anyhow::Result<f64> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "flotilla", "namespace": "kube-system" },
        "spec": { "holderIdentity": "nobody", "leaseDurationSeconds": 3600 },
    });
    BenchConnection::open(&plane.read_kubeconfig()?)?.post(LEASES, &lease.to_string())?;
    plane.stop()?;
    let data = data.display().to_string();
    let plane = MeasuredProcess::start(&[
        "serve",
        "--data-dir",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--leader-elect",
        "--leader-elect-lease-duration=1h",
    ])?;
    let kubeconfig = plane.read_kubeconfig()?;
    create_each(&kubeconfig, CONFIGMAPS, &|name| configmap(name, 100))?;
    create_each(&kubeconfig, DEPLOYMENTS, &deployment_with_config_map)?;
    create_each(&kubeconfig, POLICIES, &policy)?;
    let bindings = BenchConnection::open(&kubeconfig)?.get(BINDINGS)?.json()?;
    ensure!(items(&bindings).next().is_none(), "controllers have run");
    let peak = plane.peak_resident_bytes()?;
    plane.stop()?;
    Ok(peak)
}

fn create_each(
    kubeconfig: &Kubeconfig,
    path: &str,
    object: &(dyn Fn(&str) -> String + Sync),
) -> anyhow::Result<()> {
    let of = CreateLoadConfig {
        path,
        count: OBJECTS_PER_KIND,
        connections: 16,
    };
    create_objects(kubeconfig, &of, |n| object(&format!("{PREFIX}-{n}"))).map(drop)
}

/// A policy that propagates the Deployment with its name and its dependencies to every
/// cluster.
fn policy(name: &str) -> String {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "propagateDeps": true,
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": name }],
            "placement": { "replicaScheduling": { "replicaSchedulingType": "Duplicated" } },
        },
    })
    .to_string()
}

/// The number of bindings that are FullyApplied.
fn count_applied_bindings(kubeconfig: &Kubeconfig) -> anyhow::Result<usize> {
    let mut connection = BenchConnection::open(kubeconfig)?;
    let list = connection.get(BINDINGS)?.json()?;
    Ok(items(&list)
        .filter(|b| is_condition_true(b, "FullyApplied"))
        .count())
}
