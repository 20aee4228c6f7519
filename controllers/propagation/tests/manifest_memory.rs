//! Measures how much memory a binding of a large template to many clusters takes while its Works
//! are written. This test is alone in its process, because the allocator counts all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::{Api, ApiResource, Informer, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use controller_context::PropagationContext;
use detector::InlineSchedulingOptions;
use flotilla_runtime::{ClusterLister, ControllerContext, EventRecorder, HostWorkloadFilter};
use interpreter::ResourceInterpreter;
use karmada_api::FeatureGates;
use karmada_api::resources::{BINDINGS, CLUSTERS, WORKS};
use karmada_api::well_known_keys::BINDING_ID;
use machinery::Gvr;
use machinery::time::SystemClock;
use members::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
use peak_alloc::PeakAlloc;
use propagation::{PropagationOptions, start};
use scheduler::SchedulerClusterCache;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MEMBER_COUNT: usize = 500;
const MIB: usize = 1 << 20;
/// The limit for the memory that writing all Works takes in addition.
const MAX_PEAK_BYTES: usize = 16 * MIB;

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

struct DisconnectedMemberAccess;

impl MemberAccess for DisconnectedMemberAccess {
    fn api(&self, _: &str) -> Result<Arc<dyn Api>, String> {
        Err("no connection".into())
    }

    fn managed_informer(&self, _: &str, _: &Gvr) -> Result<Informer, String> {
        Err("no connection".into())
    }

    fn find_managed_informer(&self, _: &str, _: &Gvr) -> Option<Informer> {
        None
    }

    fn stop_managed_informer(&self, _: &str, _: &Gvr) {}

    fn on_managed_object(&self, _: MemberObjectCallback) {}

    fn on_connection_change(&self, _: MemberConnectionCallback) {}
}

fn member_name(at: usize) -> String {
    format!("m{at}")
}

/// 1 MiB in a few long strings.
fn long_strings_data() -> Value {
    let texts = (0..8).map(|n| (format!("k{n}"), Value::from("x".repeat(MIB / 8))));
    texts.collect()
}

/// 1 MiB in many short strings, as in configuration files.
fn short_strings_data() -> Value {
    let line = |n: usize| (format!("key-{n:05}"), Value::from("x".repeat(200)));
    (0..MIB / 220).map(line).collect()
}

fn binding(template: &str) -> Value {
    let clusters: Vec<Value> = (0..MEMBER_COUNT)
        .map(|at| json!({"name": member_name(at)}))
        .collect();
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{template}-configmap"), "namespace": "n",
                     "labels": {BINDING_ID: template}},
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": template},
                 "clusters": clusters}})
}

fn propagation_context(control: &Arc<FakeApi>, tasks: &TaskGroup) -> PropagationContext {
    let control: Arc<dyn Api> = control.clone();
    let informers = InformerFactory::new(tasks);
    PropagationContext {
        members: Arc::new(DisconnectedMemberAccess),
        clusters: ClusterLister::watch(&control, &informers),
        interpreter: ResourceInterpreter::default(),
        host: HostWorkloadFilter::default(),
        feature_gates: FeatureGates::default(),
        controller: ControllerContext {
            control_plane: control,
            informers,
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: tasks.clone(),
        },
    }
}

fn options(context: &PropagationContext) -> PropagationOptions {
    let clusters = SchedulerClusterCache::new(context.clusters.informer().clone());
    PropagationOptions::new(InlineSchedulingOptions::new(clusters))
}

#[tokio::test]
async fn a_mebibyte_to_500_clusters_takes_at_most_16_mebibytes() {
    let control = FakeApi::new();
    control.add_resource(ApiResource {
        resource: CONFIG_MAPS.clone(),
        kind: "ConfigMap".into(),
        namespaced: true,
        verbs: ["get", "list", "watch", "delete"].map(Into::into).into(),
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
    for at in 0..MEMBER_COUNT {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": member_name(at)}, "spec": {"syncMode": "Push"}});
        control.seed(&CLUSTERS, cluster);
    }
    for (name, data) in [
        ("texts", long_strings_data()),
        ("lines", short_strings_data()),
    ] {
        let template = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "namespace": "n"}});
        control.seed(&CONFIG_MAPS, template);
    }
    // The fake server does not keep Works, so that only the controllers' memory counts.
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    control.respond_to_create(&WORKS, move |work| {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert!(manifest.to_string().len() > MIB * 9 / 10);
        count.fetch_add(1, Ordering::Relaxed);
        json!({"metadata": {"name": "w", "namespace": "karmada-es-m0"}})
    });
    control.delay_create(&WORKS, Duration::from_millis(1));
    let tasks = TaskGroup::new(ShutdownToken::new());
    let context = propagation_context(&control, &tasks);
    start(&context, options(&context)).await.unwrap();
    for template in ["texts", "lines"] {
        written.store(0, Ordering::Relaxed);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        control.seed(&BINDINGS, binding(template));
        let all = async {
            while written.load(Ordering::Relaxed) < MEMBER_COUNT {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(120);
        tokio::time::timeout(limit, all).await.unwrap();
        let peak = ALLOCATOR.peak_usage() - before;
        assert!(peak <= MAX_PEAK_BYTES, "{template}: {} MiB", peak / MIB);
    }
    tasks.stop().await;
}
