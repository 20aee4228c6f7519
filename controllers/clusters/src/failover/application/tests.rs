//! When unhealthy copies are evicted.

use std::time::Duration;

use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::Lab;

async fn placed(lab: &Lab, name: &str, mode: &str) {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    placed_of(lab, &deployment, name, mode).await;
}

async fn placed_of(lab: &Lab, kind: &Value, name: &str, mode: &str) {
    lab.place(name, &["a", "b"], &json!([]));
    let application = json!({"decisionConditions": {"tolerationSeconds": 60}, "purgeMode": mode});
    let spec =
        json!({"resource": kind, "propagateDeps": true, "failover": {"application": application}});
    lab.merge(&BINDINGS, ("n", name), json!({"spec": spec}))
        .await;
}

// proves: APP-tolerated, APP-anew, APP-task, APP-never
#[tokio::test(start_paused = true)]
async fn a_copy_that_stays_unhealthy_is_evicted() {
    let lab = Lab::start();
    placed(&lab, "x", "Never").await;
    lab.observe("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(lab.tasks("x"), [] as [Value; 0]);
    // Well for a moment: the time begins anew.
    lab.observe("x", &[("a", "Healthy"), ("b", "Healthy")])
        .await;
    lab.settle().await;
    lab.observe("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(lab.tasks("x"), [] as [Value; 0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.placed("x"), json!([{"name": "b"}]));
    let task = &lab.tasks("x")[0];
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
    lab.tasks.stop().await;
}

// proves: APP-wide
#[tokio::test(start_paused = true)]
async fn copies_of_what_has_no_namespace_are_evicted_too() {
    let lab = Lab::start();
    let application =
        json!({"decisionConditions": {"tolerationSeconds": 60}, "purgeMode": "Directly"});
    lab.host.seed(
        &CLUSTER_BINDINGS,
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding", "metadata": {"name": "x", "generation": 1},
               "spec": {"resource": {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "x"}, "clusters": [{"name": "a"}, {"name": "b"}],
                        "propagateDeps": true, "failover": {"application": application}},
               "status": {"aggregatedStatus": [{"clusterName": "a", "health": "Unhealthy"}]}}),
    );
    sleep(Duration::from_secs(62)).await;
    let spec = lab.host.object(&CLUSTER_BINDINGS, "", "x").unwrap()["spec"].clone();
    assert_eq!(spec["clusters"], json!([{"name": "b"}]));
    assert_eq!(
        spec["gracefulEvictionTasks"][0]["producer"],
        "cluster-resource-binding-application-failover-controller"
    );
    lab.tasks.stop().await;
}

// proves: APP-hook
#[tokio::test(start_paused = true)]
async fn a_kind_of_which_no_rule_tells_the_health_is_left_alone() {
    let lab = Lab::start();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    placed_of(&lab, &map, "x", "Never").await;
    lab.observe("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(62)).await;
    assert_eq!(lab.tasks("x"), [] as [Value; 0]);
    lab.tasks.stop().await;
}
