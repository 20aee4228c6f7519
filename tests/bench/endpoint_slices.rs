//! Measures how soon the endpoints of a member reach another one by a MultiClusterService, and that nothing
//! is written when nothing changed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use crate::fleet::{CONDITION_TIMEOUT, MeasuredFleet, is_condition_true, items};
use crate::http_connection::BenchConnection;
use crate::measured_process::{MeasuredProcess, wait_until};
use crate::measurement::{MeasurementLimit, MeasurementRecorder};
use crate::member_watches::MemberWatches;

const SLICES: usize = 50;
const CHANGES: usize = 101;
const ENDPOINT_SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const MULTI_CLUSTER_SERVICES: &str =
    "/apis/networking.karmada.io/v1alpha1/namespaces/default/multiclusterservices";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/works";
/// How long writes are counted after a restart.
const OBSERVATION_TIME: Duration = Duration::from_secs(10);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

fn serve(dir: &std::path::Path) -> anyhow::Result<MeasuredProcess> {
    let dir = dir.display().to_string();
    let serve = ["serve", "--data-dir", &dir, "--listen", "127.0.0.1:0"];
    let feature_gates = ["--feature-gates", "MultiClusterService=true"];
    MeasuredProcess::start(&[&serve[..], &feature_gates].concat())
}

fn slice(n: usize, address: usize) -> String {
    let address = format!("10.{}.{}.1", address / 256, address % 256);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": format!("web-{n}"), "namespace": "default",
                      "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "port": 80 }],
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
    })
    .to_string()
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let fleet = MeasuredFleet::start_with_members(2, &[], serve)?;
    let mut control = BenchConnection::open(&fleet.control_plane.read_kubeconfig()?)?;
    let mut provider = BenchConnection::open(&fleet.members[0].read_kubeconfig()?)?;
    for n in 0..SLICES {
        provider.post(ENDPOINT_SLICES, &slice(n, n))?;
    }
    let shared = json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "types": ["CrossCluster"], "providerClusters": [{ "name": "member1" }],
                  "consumerClusters": [{ "name": "member2" }] },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "web", "namespace": "default" }, "spec": { "ports": [{ "port": 80 }] },
    });
    control.post(MULTI_CLUSTER_SERVICES, &shared.to_string())?;
    control.post(SERVICES, &service.to_string())?;
    let mut consumer = BenchConnection::open(&fleet.members[1].read_kubeconfig()?)?;
    wait_until("all slices in the consumer", CONDITION_TIMEOUT, || {
        let list = consumer.get(ENDPOINT_SLICES)?.json()?;
        let services = control.get(MULTI_CLUSTER_SERVICES)?.json()?;
        let mut services = items(&services);
        let dispatched = services.all(|s| is_condition_true(s, "EndpointSliceDispatched"));
        Ok(dispatched && items(&list).count() == SLICES)
    })?;
    fleet.control_plane.wait_until_idle(CONDITION_TIMEOUT)?;

    let watches = MemberWatches::open(&fleet.members[1..], &[ENDPOINT_SLICES])?;
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let n = change % SLICES;
        let path = format!("{ENDPOINT_SLICES}/web-{n}");
        let start = Instant::now();
        provider.patch(&path, &slice(n, 1000 + change))?;
        let expected = format!("member1-web-{n}");
        let arrived = loop {
            let observed = watches.observed.recv_timeout(CHANGE_TIMEOUT);
            let observed = observed.with_context(|| format!("{expected} in the consumer"))?;
            if observed.name == expected && observed.at > start {
                break observed.at;
            }
        };
        times.push(arrived.duration_since(start).as_secs_f64() * 1000.0);
    }
    drop(watches);
    let setup = "an EndpointSlice of 50 changes in a member: until it has changed in another one, 101 times";
    let limit = MeasurementLimit::Below(1000.0);
    report.record_percentiles("endpoints_follow", &mut times, "ms", limit, setup);
    measure_restart(report, fleet)
}

/// The resourceVersions of the objects of a path.
fn versions(process: &MeasuredProcess, path: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let list = BenchConnection::open(&process.read_kubeconfig()?)?
        .get(path)?
        .json()?;
    let named = items(&list).map(|object| {
        let metadata = &object["metadata"];
        let key = format!("{}/{}", metadata["namespace"], metadata["name"]);
        (key, metadata["resourceVersion"].to_string())
    });
    Ok(named.collect())
}

fn measure_restart(report: &mut MeasurementRecorder, fleet: MeasuredFleet) -> anyhow::Result<()> {
    fleet.control_plane.wait_until_idle(CONDITION_TIMEOUT)?;
    let paths = [WORKS, MULTI_CLUSTER_SERVICES, SERVICES];
    let all = |plane: &MeasuredProcess, consumer: &MeasuredProcess| -> anyhow::Result<_> {
        let mut all: Vec<_> = Vec::new();
        for path in paths {
            all.extend(versions(plane, path)?);
        }
        all.extend(versions(consumer, ENDPOINT_SLICES)?);
        Ok(all)
    };
    let before = all(&fleet.control_plane, &fleet.members[1])?;
    let MeasuredFleet {
        control_plane,
        members,
        dir,
    } = fleet;
    control_plane.stop()?;
    let fleet = MeasuredFleet {
        control_plane: serve(&dir.path().join("plane"))?,
        members,
        dir,
    };
    fleet.wait_ready()?;
    std::thread::park_timeout(OBSERVATION_TIME);
    fleet.control_plane.wait_until_idle(CONDITION_TIMEOUT)?;
    let after = all(&fleet.control_plane, &fleet.members[1])?;
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    let changed = changed + before.len().abs_diff(after.len());
    let setup = "Works, MultiClusterServices, Services and the consumer's slices that a restart of the control plane writes, of 103 objects and more";
    let limit = MeasurementLimit::Below(1.0);
    report.record(
        "endpoints_idle_writes",
        changed as f64,
        "objects",
        limit,
        setup,
    );
    Ok(())
}
