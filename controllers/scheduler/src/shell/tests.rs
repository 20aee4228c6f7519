//! The scheduler over an API server in memory.

use std::time::Duration;

use client::fake::FakeApi;
use machinery::time::SystemClock;
use openapi::karmada::labels;
use serde_json::{Value, json};

use super::*;

static CLUSTERS: Gvr = Gvr::constant("cluster.karmada.io", "v1alpha1", "clusters");

struct Plane {
    fake: Arc<FakeApi>,
    tasks: Tasks,
    /// Informers end when nobody holds them.
    _informers: Informers,
}

impl Plane {
    async fn start(clusters: &[&str], binding: Value) -> Self {
        let fake = FakeApi::new();
        for name in clusters {
            fake.seed(
                &CLUSTERS,
                crate::core::tests::cluster(name, 10, json!({}))
                    .value()
                    .unwrap(),
            );
        }
        fake.seed(&BINDINGS, binding);
        let api: Arc<dyn Api> = fake.clone();
        let tasks = Tasks::new(runtime::Shutdown::new());
        let informers = Informers::new(&tasks);
        let clusters = Clusters::new(informers.get(&api, &Select::all(&CLUSTERS)));
        let clock = Arc::new(SystemClock);
        Scheduler::start(
            api,
            clock,
            Recorder::disabled(),
            clusters,
            Options::default(),
            &informers,
            &tasks,
        );
        Self {
            fake,
            tasks,
            _informers: informers,
        }
    }

    /// Waits until the binding is as a test wants it.
    async fn until(&self, what: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2000 {
            let binding = self.fake.object(&BINDINGS, "n", "web-deployment").unwrap();
            if what(&binding) {
                return binding;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!(
            "not reached: {:?}",
            self.fake.object(&BINDINGS, "n", "web-deployment")
        );
    }
}

fn binding(placement: Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "n", "generation": 1, "labels": {labels::POLICY_ID: "p"}},
        "spec": {"replicas": 4, "placement": placement,
                 "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web", "uid": "u"}},
    })
}

fn condition(binding: &Value) -> (&str, &str) {
    let c = &binding["status"]["conditions"][0];
    (
        c["status"].as_str().unwrap_or(""),
        c["reason"].as_str().unwrap_or(""),
    )
}

#[tokio::test]
async fn a_binding_is_placed_and_told_so_once() {
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    let plane = Plane::start(&["m1", "m2", "m3"], binding(placement.clone())).await;
    let done = plane.until(|b| condition(b).0 == "True").await;
    assert_eq!(
        done["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}])
    );
    assert_eq!(
        done["metadata"]["annotations"][labels::APPLIED_PLACEMENT],
        placement.to_string()
    );
    assert_eq!(
        done["status"]["schedulerObservedGeneration"],
        done["metadata"]["generation"]
    );
    assert_eq!(
        plane.fake.writes().len(),
        2,
        "one write of the result and one of the status"
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_result_in_another_order_is_no_other_result() {
    let plane = Plane::start(&["m1", "m2"], binding(json!({}))).await;
    let mut done = plane.until(|b| condition(b).0 == "True").await;
    let writes = plane.fake.writes().len();
    done["metadata"]["generation"] = json!(9);
    let clusters = done["spec"]["clusters"].as_array_mut().unwrap();
    clusters.reverse();
    let reversed = clusters.clone();
    plane.fake.seed(&BINDINGS, done);
    let seen = |b: &Value| b["status"]["schedulerObservedGeneration"] == 9;
    let after = plane.until(seen).await;
    assert_eq!(after["spec"]["clusters"], json!(reversed));
    assert_eq!(plane.fake.writes().len(), writes + 1, "of the status alone");
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_cluster_that_serves_the_kind_at_last_is_taken() {
    let plane = Plane::start(
        &["m1"],
        binding(json!({"clusterAffinity": {"clusterNames": ["m2"]}})),
    )
    .await;
    plane
        .until(|b| condition(b) == ("False", "NoClusterFit"))
        .await;
    let mut late = crate::core::tests::cluster("m2", 10, json!({}))
        .value()
        .unwrap();
    let enablements = std::mem::replace(&mut late["status"]["apiEnablements"], json!([]));
    plane.fake.seed(&CLUSTERS, late.clone());
    late["status"]["apiEnablements"] = enablements;
    plane.fake.seed(&CLUSTERS, late);
    let done = plane.until(|b| condition(b).0 == "True").await;
    assert_eq!(done["spec"]["clusters"][0]["name"], "m2");
    plane.tasks.stop().await;
}

#[tokio::test]
async fn all_clusters_that_serve_the_kind_are_taken_the_late_ones_too() {
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    let plane = Plane::start(&["m1"], binding(placement)).await;
    let names = |b: &Value| {
        let all = b["spec"]["clusters"].as_array().into_iter().flatten();
        let names = all.filter_map(|c| c["name"].as_str().map(str::to_owned));
        names.collect::<Vec<_>>()
    };
    plane.until(|b| condition(b).0 == "True").await;
    let mut late = crate::core::tests::cluster("m2", 10, json!({}))
        .value()
        .unwrap();
    let enablements = std::mem::replace(&mut late["status"]["apiEnablements"], json!([]));
    plane.fake.seed(&CLUSTERS, late.clone());
    late["status"]["apiEnablements"] = enablements;
    plane.fake.seed(&CLUSTERS, late);
    plane.until(|b| names(b) == ["m1", "m2"]).await;
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_binding_without_a_claim_is_left_alone() {
    let mut foreign = binding(json!({}));
    foreign["metadata"]["labels"] = json!({});
    let plane = Plane::start(&["m1"], foreign).await;
    let mut own = binding(json!({}));
    own["metadata"]["name"] = "other".into();
    plane.fake.seed(&BINDINGS, own);
    for _ in 0..2000 {
        if plane.fake.object(&BINDINGS, "n", "other").unwrap()["status"].is_object() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(plane.fake.writes().iter().all(|w| w.name == "other"));
    plane.tasks.stop().await;
}
