//! Measures a cold start like the one that Karmada publishes: many Deployments were created
//! while no controllers ran, each with a policy and a ConfigMap as its dependency, for two
//! members without workload controllers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use crate::create::{Load, load};
use crate::figure::{Limit, Report};
use crate::fleet::{Fleet, condition, items};
use crate::kubeconfig::Kubeconfig;
use crate::objects::{BINDINGS, CONFIGMAPS, DEPLOYMENTS, POLICIES, configmap, dependent};
use crate::process::{MIB, Process};
use crate::seen::Watches;
use crate::wire::Connection;

/// The number of Deployments, of policies and of ConfigMaps.
const EACH: usize = 5000;
const MEMBERS: usize = 2;
const PREFIX: &str = "cold";
const PATIENCE: Duration = Duration::from_secs(120);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    let Fleet {
        plane,
        members,
        dir,
    } = Fleet::of(MEMBERS, &["--workloads=false"], Process::serve)?;
    let data = dir.path().join("plane");
    let before = created(plane, &data)?;

    let watches = Watches::open(&members, &[DEPLOYMENTS, CONFIGMAPS])?;
    let began = Instant::now();
    let plane = Process::serve(&data)?;
    let objects = 2 * EACH * MEMBERS;
    let last = watches.all(PREFIX, objects)?;
    let took = last.duration_since(began).as_secs_f64();
    let cpu = plane.quiet(PATIENCE)?;
    let (peak, resident) = (plane.peak()? / MIB, plane.resident()? / MIB);
    let applied = applied(&plane.access()?)?;
    ensure!(applied == 2 * EACH, "{applied} bindings are FullyApplied");

    let setup = "5,000 Deployments, each with a policy and a ConfigMap as its dependency, created while no controllers ran, to 2 members without workload controllers, which do not sync their writes: from the start of serve to the last of 20,000 objects (Karmada v1.14: 240 s)";
    report.tell("cold_applied", took, "s", Limit::Below(30.0), setup);
    let rate = objects as f64 / took;
    report.tell("cold_rate", rate, "1/s", Limit::None, setup);
    let setup = "the same, until all status is written and the control plane is idle";
    report.tell("cold_cpu", cpu, "s", Limit::None, setup);
    report.tell("cold_peak", peak, "MiB", Limit::Below(400.0), setup);
    report.tell("cold_memory", resident, "MiB", Limit::None, setup);
    let setup = "peak of resident memory while all objects were created, no controllers";
    report.tell("cold_create_peak", before / MIB, "MiB", Limit::None, setup);
    Ok(())
}

/// Restarts the control plane with the controllers' lease held by another identity, creates
/// all objects, and stops it. Returns its peak of resident memory.
fn created(plane: Process, data: &Path) -> anyhow::Result<f64> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "flotilla", "namespace": "kube-system" },
        "spec": { "holderIdentity": "nobody", "leaseDurationSeconds": 3600 },
    });
    Connection::open(&plane.access()?)?.post(LEASES, &lease.to_string())?;
    plane.stop()?;
    let data = data.display().to_string();
    let plane = Process::start(&[
        "serve",
        "--data-dir",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--leader-elect",
        "--leader-elect-lease-duration=1h",
    ])?;
    let to = plane.access()?;
    create(&to, CONFIGMAPS, &|name| configmap(name, 100))?;
    create(&to, DEPLOYMENTS, &dependent)?;
    create(&to, POLICIES, &policy)?;
    let bindings = Connection::open(&to)?.get(BINDINGS)?.json()?;
    ensure!(items(&bindings).next().is_none(), "controllers have run");
    let peak = plane.peak()?;
    plane.stop()?;
    Ok(peak)
}

fn create(
    to: &Kubeconfig,
    path: &str,
    object: &(dyn Fn(&str) -> String + Sync),
) -> anyhow::Result<()> {
    let of = Load {
        path,
        count: EACH,
        connections: 16,
    };
    load(to, &of, |n| object(&format!("{PREFIX}-{n}"))).map(drop)
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
fn applied(to: &Kubeconfig) -> anyhow::Result<usize> {
    let mut connection = Connection::open(to)?;
    let list = connection.get(BINDINGS)?.json()?;
    Ok(items(&list)
        .filter(|b| condition(b, "FullyApplied"))
        .count())
}
