//! Measures how much memory a binding of a large template to many clusters takes while its Works
//! are written. This test is alone in its process, because the allocator counts all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::fake::FakeApi;
use client::{Api, ApiResource};
use interpreter::Interpreter;
use machinery::Gvr;
use machinery::time::SystemClock;
use openapi::karmada::labels::BINDING_ID;
use openapi::karmada::resources::{BINDINGS, CLUSTERS, WORKS};
use peak_alloc::PeakAlloc;
use propagation::{Deps, MemberAccess, OnConnect, OnObject, Options, start};
use flotilla_runtime::{HostWorkloads, Informer, Informers, Recorder, Select, Shutdown, Tasks};
use scheduler::core::{Plugins, Rules};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MEMBERS: usize = 500;
const MIB: usize = 1 << 20;
/// The limit for the memory that writing all Works takes in addition.
const PEAK: usize = 16 * MIB;

static CONFIG_MAPS: Gvr = Gvr::constant("", "v1", "configmaps");

struct NoMembers;

impl MemberAccess for NoMembers {
    fn api(&self, _: &str) -> Result<Arc<dyn Api>, String> {
        Err("no connection".into())
    }

    fn managed(&self, _: &str, _: &Gvr) -> Result<Informer, String> {
        Err("no connection".into())
    }

    fn followed(&self, _: &str, _: &Gvr) -> Option<Informer> {
        None
    }

    fn unfollow(&self, _: &str, _: &Gvr) {}

    fn on_object(&self, _: OnObject) {}

    fn on_connect(&self, _: OnConnect) {}
}

fn member(at: usize) -> String {
    format!("m{at}")
}

/// 1 MiB in a few long strings.
fn of_texts() -> Value {
    let texts = (0..8).map(|n| (format!("k{n}"), Value::from("x".repeat(MIB / 8))));
    texts.collect()
}

/// 1 MiB in many short strings, as in configuration files.
fn of_lines() -> Value {
    let line = |n: usize| (format!("key-{n:05}"), Value::from("x".repeat(200)));
    (0..MIB / 220).map(line).collect()
}

fn binding(template: &str) -> Value {
    let clusters: Vec<Value> = (0..MEMBERS).map(|at| json!({"name": member(at)})).collect();
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": format!("{template}-configmap"), "namespace": "n",
                     "labels": {BINDING_ID: template}},
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": template},
                 "clusters": clusters}})
}

fn deps(control: &Arc<FakeApi>, tasks: &Tasks) -> Deps {
    let control: Arc<dyn Api> = control.clone();
    let informers = Informers::new(tasks);
    let clusters = informers.get(&control, &Select::all(&CLUSTERS));
    let options = Options::default();
    let rules = Rules::new(options.gates, Plugins::default(), false);
    Deps {
        interpreter: Interpreter::default(),
        control,
        members: Arc::new(NoMembers),
        clusters: scheduler::Clusters::under(clusters, rules),
        recorder: Recorder::disabled(),
        clock: Arc::new(SystemClock),
        informers,
        host: HostWorkloads::default(),
        options,
    }
}

#[tokio::test]
async fn a_mebibyte_to_500_clusters_takes_at_most_16_mebibytes() {
    let control = FakeApi::new();
    control.serve(ApiResource {
        resource: CONFIG_MAPS.clone(),
        kind: "ConfigMap".into(),
        namespaced: true,
        verbs: ["get", "list", "watch", "delete"].map(Into::into).into(),
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
    for at in 0..MEMBERS {
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": member(at)}, "spec": {"syncMode": "Push"}});
        control.seed(&CLUSTERS, cluster);
    }
    for (name, data) in [("texts", of_texts()), ("lines", of_lines())] {
        let template = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "namespace": "n"}});
        control.seed(&CONFIG_MAPS, template);
    }
    // The fake server does not keep Works, so that only the controllers' memory counts.
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    control.answer(&WORKS, move |work| {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert!(manifest.to_string().len() > MIB * 9 / 10);
        count.fetch_add(1, Ordering::Relaxed);
        json!({"metadata": {"name": "w", "namespace": "karmada-es-m0"}})
    });
    control.delay_create(&WORKS, Duration::from_millis(1));
    let tasks = Tasks::new(Shutdown::new());
    start(deps(&control, &tasks), &tasks).await.unwrap();
    for template in ["texts", "lines"] {
        written.store(0, Ordering::Relaxed);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        control.seed(&BINDINGS, binding(template));
        let all = async {
            while written.load(Ordering::Relaxed) < MEMBERS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(120);
        tokio::time::timeout(limit, all).await.unwrap();
        let peak = ALLOCATOR.peak_usage() - before;
        assert!(peak <= PEAK, "{template}: {} MiB", peak / MIB);
    }
    tasks.stop().await;
}
