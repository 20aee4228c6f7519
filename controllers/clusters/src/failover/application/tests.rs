//! Tests of the application failover controller.

use std::time::Duration;

use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::Lab;

async fn placed(fixture: &Lab, name: &str, mode: &str) {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    placed_of(fixture, &deployment, name, mode).await;
}

async fn placed_of(fixture: &Lab, kind: &Value, name: &str, mode: &str) {
    fixture.place(name, &["a", "b"], &json!([]));
    let application = json!({"decisionConditions": {"tolerationSeconds": 60}, "purgeMode": mode});
    let spec =
        json!({"resource": kind, "propagateDeps": true, "failover": {"application": application}});
    fixture
        .merge(&BINDINGS, ("n", name), json!({"spec": spec}))
        .await;
}

// proves: APP-tolerated, APP-anew, APP-task, APP-never
#[tokio::test(start_paused = true)]
async fn a_workload_that_stays_unhealthy_is_evicted() {
    let fixture = Lab::start();
    placed(&fixture, "x", "Never").await;
    fixture
        .observe("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    // A healthy moment restarts the toleration.
    fixture
        .observe("x", &[("a", "Healthy"), ("b", "Healthy")])
        .await;
    fixture.settle().await;
    fixture
        .observe("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.placed("x"), json!([{"name": "b"}]));
    let task = &fixture.eviction_tasks("x")[0];
    for (field, value) in [
        ("reason", json!("ApplicationFailure")),
        (
            "producer",
            json!("resource-binding-application-failover-controller"),
        ),
        ("purgeMode", json!("Never")),
        ("suppressDeletion", json!(true)),
    ] {
        assert_eq!(task[field], value, "{task}");
    }
    fixture.tasks.stop().await;
}

// proves: APP-wide
#[tokio::test(start_paused = true)]
async fn cluster_scoped_workloads_are_evicted_too() {
    let fixture = Lab::start();
    let application =
        json!({"decisionConditions": {"tolerationSeconds": 60}, "purgeMode": "Directly"});
    fixture.host.seed(
        &CLUSTER_BINDINGS,
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding", "metadata": {"name": "x", "generation": 1},
               "spec": {"resource": {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "x"}, "clusters": [{"name": "a"}, {"name": "b"}],
                        "propagateDeps": true, "failover": {"application": application}},
               "status": {"aggregatedStatus": [{"clusterName": "a", "health": "Unhealthy"}]}}),
    );
    sleep(Duration::from_secs(62)).await;
    let spec = fixture.host.object(&CLUSTER_BINDINGS, "", "x").unwrap()["spec"].clone();
    assert_eq!(spec["clusters"], json!([{"name": "b"}]));
    assert_eq!(
        spec["gracefulEvictionTasks"][0]["producer"],
        "cluster-resource-binding-application-failover-controller"
    );
    fixture.tasks.stop().await;
}

// proves: APP-hook
#[tokio::test(start_paused = true)]
async fn a_kind_without_a_health_interpreter_is_left_alone() {
    let fixture = Lab::start();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    placed_of(&fixture, &map, "x", "Never").await;
    fixture
        .observe("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(62)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    fixture.tasks.stop().await;
}
