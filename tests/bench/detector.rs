//! Measures how long the detector needs for many templates and policies, with an API server
//! in memory.
//!
//! templates, policies ──► propagation ──► claims and bindings, counted on the server
//!
//! No cluster has joined, so that nothing is scheduled and no Work is created.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use client::{Api, ApiResource, Informer, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use controller_context::PropagationContext;
use detector::InlineSchedulingOptions;
use flotilla_runtime::{ClusterLister, ControllerContext, EventRecorder, HostWorkloadFilter};
use karmada_api::FeatureGates;
use karmada_api::resources::{BINDINGS, POLICIES};
use karmada_api::well_known_keys::POLICY_ID;
use machinery::Gvr;
use machinery::time::SystemClock;
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
use propagation::PropagationOptions;
use scheduler::SchedulerClusterCache;
use serde_json::json;

use crate::measurement::{MeasurementLimit, MeasurementRecorder};

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

const NAMESPACES: usize = 10;
const POLICIES_PER_NAMESPACE: usize = 100;
/// Templates of each policy.
const TEMPLATES_PER_POLICY: usize = 10;
const TEMPLATES: usize = NAMESPACES * POLICIES_PER_NAMESPACE * TEMPLATES_PER_POLICY;
const EDITS: usize = 31;
const BINDINGS_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time for the detector to receive the events of its own writes.
const OWN_WRITES_PAUSE: Duration = Duration::from_secs(1);

/// Access to members when none has joined.
struct NoMemberAccess;

impl MemberAccess for NoMemberAccess {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        Err(format!("{cluster} has not joined"))
    }

    fn managed_informer(&self, cluster: &str, _resource: &Gvr) -> Result<Informer, String> {
        Err(format!("{cluster} has not joined"))
    }

    fn find_managed_informer(&self, _cluster: &str, _resource: &Gvr) -> Option<Informer> {
        None
    }

    fn stop_managed_informer(&self, _cluster: &str, _resource: &Gvr) {}

    fn on_managed_object(&self, _handler: MemberObjectCallback) {}

    fn on_connection_change(&self, _handler: MemberConnectionCallback) {}
}

fn policy(namespace: usize, n: usize) -> serde_json::Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": format!("p{n}"), "namespace": format!("n{namespace}"),
                     "labels": {POLICY_ID: format!("id-{namespace}-{n}")}},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap",
                                   "labelSelector": {"matchLabels": {"app": format!("a{n}")}}}],
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
            "schedulerName": "default-scheduler", "conflictResolution": "Abort",
        },
    })
}

/// An API server with all templates and policies and no bindings.
fn seeded_api() -> Arc<FakeApi> {
    let control = FakeApi::new();
    let verbs = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    control.add_resource(ApiResource {
        resource: CONFIG_MAPS.clone(),
        kind: "ConfigMap".into(),
        namespaced: true,
        verbs: verbs.map(Into::into).into(),
        subresources: Vec::new(),
        categories: Vec::new(),
        short_names: Vec::new(),
    });
    for namespace in 0..NAMESPACES {
        for n in 0..POLICIES_PER_NAMESPACE {
            control.seed(&POLICIES, policy(namespace, n));
            for one in 0..TEMPLATES_PER_POLICY {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                    "metadata": {"name": format!("c{n}-{one}"), "namespace": format!("n{namespace}"),
                                 "labels": {"app": format!("a{n}"), "tier": "t"}},
                });
                control.seed(&CONFIG_MAPS, map);
            }
        }
    }
    control
}

/// Waits until the server has had this number of writes of bindings.
async fn wait_for_binding_writes(control: &FakeApi, expected: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let writes = control.writes();
        let bindings = writes.iter().filter(|w| w.resource == BINDINGS).count();
        if bindings >= expected {
            return Ok(());
        }
        ensure!(
            start.elapsed() < BINDINGS_TIMEOUT,
            "{bindings} of {expected} bindings"
        );
        tokio::time::sleep(POLL_INTERVAL.max(start.elapsed() / 50)).await;
    }
}

async fn measure(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    let control = seeded_api();
    let tasks = TaskGroup::new(ShutdownToken::new());
    let informers = InformerFactory::new(&tasks);
    let api: Arc<dyn Api> = control.clone();
    let clusters = ClusterLister::watch(&api, &informers);
    let scheduled = SchedulerClusterCache::new(clusters.informer().clone());
    let options = PropagationOptions::new(InlineSchedulingOptions::new(scheduled));
    let context = PropagationContext {
        members: Arc::new(NoMemberAccess),
        clusters,
        interpreter: interpreter::ResourceInterpreter::default(),
        host: HostWorkloadFilter::default(),
        feature_gates: FeatureGates::default(),
        controller: ControllerContext {
            control_plane: api,
            informers,
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: tasks.clone(),
        },
    };
    let start = Instant::now();
    let started = propagation::start(&context, options).await;
    started.map_err(|message| anyhow!(message))?;
    wait_for_binding_writes(&control, TEMPLATES).await?;
    let setup = "10,000 ConfigMaps and 1,000 policies by labels, from the start to the last binding, server in memory";
    let elapsed = start.elapsed().as_secs_f64();
    report.record(
        "detector_cold",
        elapsed,
        "s",
        MeasurementLimit::Below(2.0),
        setup,
    );

    tokio::time::sleep(OWN_WRITES_PAUSE).await;
    control.clear_writes();
    let mut times = Vec::new();
    for n in 0..EDITS {
        let mut edited = policy(n % NAMESPACES, n);
        edited["metadata"]["generation"] = json!(2);
        edited["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2"]);
        let start = Instant::now();
        control.seed(&POLICIES, edited);
        wait_for_binding_writes(&control, (n + 1) * TEMPLATES_PER_POLICY).await?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let setup = "one policy of 1,000 is edited: until the bindings of its 10 templates are updated, 31 times";
    let limit = MeasurementLimit::Below(20.0);
    report.record_percentiles("detector_edit", &mut times, "ms", limit, setup);
    // Each edit comes after all writes that the previous one may have caused.
    let beside = control.writes().len() - EDITS * TEMPLATES_PER_POLICY;
    let setup = "writes beside those to the bindings of the edited policies";
    report.record(
        "detector_edit_beside",
        beside as f64,
        "writes",
        MeasurementLimit::Below(1.0),
        setup,
    );
    tasks.stop().await;
    Ok(())
}

pub(crate) fn run(report: &mut MeasurementRecorder) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(measure(report))
}
