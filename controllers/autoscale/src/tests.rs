//! Tests of both controllers against a fake API.

use std::sync::Arc;
use std::time::Duration;

use client::fake::FakeApi;
use client::{Api, ApiResource};
use openapi::karmada::labels::{POLICY_ID, RETAIN_REPLICAS};
use openapi::karmada::resources::BINDINGS;
use flotilla_runtime::{Informers, Shutdown, Tasks};
use serde_json::{Value, json};

use crate::{AUTOSCALERS, DEPLOYMENTS, Deps, Options, start};

/// Starts both controllers. The watches end with the informers.
async fn plane() -> (Arc<FakeApi>, Informers, Tasks) {
    let api = FakeApi::new();
    api.serve(ApiResource {
        resource: DEPLOYMENTS.clone(),
        kind: "Deployment".into(),
        namespaced: true,
        verbs: vec!["get".into(), "patch".into()],
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
    for name in ["a", "b"] {
        api.seed(&DEPLOYMENTS, json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "n"}, "spec": {"replicas": 2}, "status": {"replicas": 2}}));
    }
    let tasks = Tasks::new(Shutdown::new());
    let control: Arc<dyn Api> = api.clone();
    let informers = Informers::new(&tasks);
    let deps = Deps {
        control,
        informers: informers.clone(),
        options: Options {
            scale_target_marker: true,
            replicas_syncer: true,
        },
    };
    start(&deps, &tasks).await;
    (api, informers, tasks)
}

fn autoscaler(name: &str, target: &str) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "n", "labels": {POLICY_ID: "x"}},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}})
}

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not reached: {what}");
}

// proves: AUT-marked, AUT-unmarked
#[tokio::test]
async fn targets_are_labeled_while_an_autoscaler_targets_them() {
    let (api, _informers, tasks) = plane().await;
    let marked = |name: &str| {
        let deployment = api.object(&DEPLOYMENTS, "n", name).unwrap();
        deployment["metadata"]["labels"][RETAIN_REPLICAS] == "true"
    };
    api.seed(&AUTOSCALERS, autoscaler("h", "a"));
    api.seed(&AUTOSCALERS, autoscaler("i", "a"));
    until("marked", || marked("a")).await;
    api.seed(&AUTOSCALERS, autoscaler("h", "b"));
    until("the other marked", || marked("b")).await;
    assert!(marked("a"), "another autoscaler still targets it");
    api.remove(&AUTOSCALERS, "n", "i");
    until("unmarked", || !marked("a")).await;
    api.remove(&AUTOSCALERS, "n", "h");
    until("the other unmarked", || !marked("b")).await;
    tasks.stop().await;
}

// proves: AUT-follows
#[tokio::test]
async fn deployment_replicas_follow_the_members() {
    let (api, _informers, tasks) = plane().await;
    let replicas = || api.object(&DEPLOYMENTS, "n", "a").unwrap()["spec"]["replicas"].clone();
    let binding = |reported: i64| {
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": "a-deployment", "namespace": "n", "generation": 1},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "a"},
                "replicas": 2, "clusters": [{"name": "m", "replicas": 2}],
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}},
            "status": {"schedulerObservedGeneration": 1,
                "aggregatedStatus": [{"clusterName": "m", "status": {"replicas": reported}}]}})
    };
    api.seed(&BINDINGS, binding(2));
    api.seed(&AUTOSCALERS, autoscaler("h", "a"));
    until("marked", || {
        let deployment = api.object(&DEPLOYMENTS, "n", "a").unwrap();
        deployment["metadata"]["labels"][RETAIN_REPLICAS] == "true"
    })
    .await;
    let mut scaled = api.object(&DEPLOYMENTS, "n", "a").unwrap();
    scaled["status"]["replicas"] = json!(4);
    api.seed(&DEPLOYMENTS, scaled);
    assert_eq!(replicas(), 2);
    // The status of the binding comes last; its change enqueues the Deployment.
    api.seed(&BINDINGS, binding(4));
    until("followed", || replicas() == 4).await;
    tasks.stop().await;
}
