//! Tests of the application failover controller.

use std::time::Duration;

use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::rollout::ROLLOUTS;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::ClustersFixture;

async fn seed_deployment_binding(fixture: &ClustersFixture, name: &str, mode: &str) {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    seed_binding_of_kind(fixture, &deployment, name, mode).await;
}

async fn seed_binding_of_kind(fixture: &ClustersFixture, kind: &Value, name: &str, mode: &str) {
    fixture.seed_binding(name, &["a", "b"], &json!([]));
    let application = json!({"decisionConditions": {"tolerationSeconds": 60}, "purgeMode": mode});
    let spec =
        json!({"resource": kind, "propagateDeps": true, "failover": {"application": application}});
    fixture
        .merge_patch(&BINDINGS, ("n", name), json!({"spec": spec}))
        .await;
}

// proves: APP-tolerated, APP-anew, APP-task, APP-never
#[tokio::test(start_paused = true)]
async fn a_workload_that_stays_unhealthy_is_evicted() {
    let fixture = ClustersFixture::start();
    seed_deployment_binding(&fixture, "x", "Never").await;
    fixture
        .set_observed_status("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    // A healthy moment restarts the toleration.
    fixture
        .set_observed_status("x", &[("a", "Healthy"), ("b", "Healthy")])
        .await;
    fixture.wait_until_idle().await;
    fixture
        .set_observed_status("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.scheduled_clusters("x"), json!([{"name": "b"}]));
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

// proves: APP-rollout
#[tokio::test(start_paused = true)]
async fn a_cluster_is_not_evicted_while_its_rollout_changes_it() {
    let fixture = ClustersFixture::start();
    seed_deployment_binding(&fixture, "x", "Directly").await;
    let rollout = |phase: &str, batch: i64| {
        json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "Rollout", "metadata": {"namespace": "n", "name": "x"},
               "status": {"stages": [{"name": "s", "clusters": [{"name": "a", "phase": phase, "batchPercent": batch}]}]}})
    };
    fixture.host.seed(&ROLLOUTS, rollout("Updating", 0));
    fixture
        .set_observed_status("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    for (phase, batch) in [("Soaking", 50), ("Blocked", 50)] {
        sleep(Duration::from_secs(600)).await;
        assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
        fixture.host.seed(&ROLLOUTS, rollout(phase, batch));
    }
    sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    // The toleration begins when the change has failed.
    fixture.host.seed(&ROLLOUTS, rollout("Failed", 50));
    sleep(Duration::from_secs(59)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(fixture.eviction_tasks("x").len(), 1);
    fixture.tasks.stop().await;
}

// proves: APP-wide
#[tokio::test(start_paused = true)]
async fn cluster_scoped_workloads_are_evicted_too() {
    let fixture = ClustersFixture::start();
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
    let spec = fixture.host.get_object(&CLUSTER_BINDINGS, "", "x").unwrap()["spec"].clone();
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
    let fixture = ClustersFixture::start();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    seed_binding_of_kind(&fixture, &map, "x", "Never").await;
    fixture
        .set_observed_status("x", &[("a", "Unhealthy"), ("b", "Healthy")])
        .await;
    sleep(Duration::from_secs(62)).await;
    assert_eq!(fixture.eviction_tasks("x"), [] as [Value; 0]);
    fixture.tasks.stop().await;
}
