//! Tests of both controllers against a fake API.

use std::sync::Arc;

use client::{Api, ApiResource, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use karmada_api::resources::BINDINGS;
use karmada_api::well_known_keys::{POLICY_ID, RETAIN_REPLICAS};
use serde_json::{Value, json};

use crate::fixture::{context, options, wait_until};
use crate::{AUTOSCALERS, DEPLOYMENTS, EnabledAutoscalers, start};

/// Starts both controllers. The watches end with the informers.
async fn start_controllers() -> (Arc<FakeApi>, InformerFactory, TaskGroup) {
    let api = FakeApi::new();
    api.add_resource(ApiResource {
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
    let tasks = TaskGroup::new(ShutdownToken::new());
    let control: Arc<dyn Api> = api.clone();
    let context = context(&control, &tasks);
    let mut options = options(&context);
    options.enabled = EnabledAutoscalers {
        federated_hpa: false,
        cron_federated_hpa: false,
        scale_target_marker: true,
        replicas_syncer: true,
    };
    let informers = context.informers.clone();
    start(&context, &options).await;
    (api, informers, tasks)
}

fn autoscaler(name: &str, target: &str) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "n", "labels": {POLICY_ID: "x"}},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}})
}

// proves: AUT-marked, AUT-unmarked
#[tokio::test]
async fn targets_are_labeled_while_an_autoscaler_targets_them() {
    let (api, _informers, tasks) = start_controllers().await;
    let deployments = || json!(api.list_objects(&DEPLOYMENTS));
    let marked = |name: &str| {
        let deployment = api.get_object(&DEPLOYMENTS, "n", name).unwrap();
        deployment["metadata"]["labels"][RETAIN_REPLICAS] == "true"
    };
    api.seed(&AUTOSCALERS, autoscaler("h", "a"));
    api.seed(&AUTOSCALERS, autoscaler("i", "a"));
    wait_until("marked", deployments, || marked("a")).await;
    api.seed(&AUTOSCALERS, autoscaler("h", "b"));
    wait_until("the other marked", deployments, || marked("b")).await;
    assert!(marked("a"), "another autoscaler still targets it");
    api.remove(&AUTOSCALERS, "n", "i");
    wait_until("unmarked", deployments, || !marked("a")).await;
    api.remove(&AUTOSCALERS, "n", "h");
    wait_until("the other unmarked", deployments, || !marked("b")).await;
    tasks.stop().await;
}

// proves: AUT-follows
#[tokio::test]
async fn deployment_replicas_follow_the_members() {
    let (api, _informers, tasks) = start_controllers().await;
    let deployments = || json!(api.list_objects(&DEPLOYMENTS));
    let replicas = || api.get_object(&DEPLOYMENTS, "n", "a").unwrap()["spec"]["replicas"].clone();
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
    wait_until("marked", deployments, || {
        let deployment = api.get_object(&DEPLOYMENTS, "n", "a").unwrap();
        deployment["metadata"]["labels"][RETAIN_REPLICAS] == "true"
    })
    .await;
    let mut scaled = api.get_object(&DEPLOYMENTS, "n", "a").unwrap();
    scaled["status"]["replicas"] = json!(4);
    api.seed(&DEPLOYMENTS, scaled);
    assert_eq!(replicas(), 2);
    // The status of the binding comes last; its change enqueues the Deployment.
    api.seed(&BINDINGS, binding(4));
    wait_until("followed", deployments, || replicas() == 4).await;
    tasks.stop().await;
}
