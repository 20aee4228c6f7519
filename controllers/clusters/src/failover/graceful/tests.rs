//! Tests of the graceful eviction controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use karmada_api::resources::BINDINGS;
use karmada_api::{FeatureGates, KarmadaFeature};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::ClustersFixture;
use crate::options::ClusterControllersSettings;

async fn seed_evicting_binding(fixture: &ClustersFixture, name: &str, more: Value) {
    fixture.seed_binding(name, &["b"], &json!([]));
    let mut task =
        json!({"fromCluster": "a", "reason": "r", "producer": "p", "purgeMode": "Gracefully"});
    task.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let spec = json!({"spec": {"gracefulEvictionTasks": [task]}});
    fixture.merge_patch(&BINDINGS, ("n", name), spec).await;
}

// proves: GRA-healthy, GRA-stamp
#[tokio::test(start_paused = true)]
async fn a_task_ends_when_the_replacements_are_healthy() {
    let fixture = ClustersFixture::start();
    seed_evicting_binding(&fixture, "x", json!({})).await;
    fixture.wait_until_idle().await;
    assert!(fixture.eviction_tasks("x")[0]["creationTimestamp"].is_string());
    fixture
        .set_observed_status("x", &[("a", "Healthy"), ("b", "Unhealthy")])
        .await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.eviction_tasks("x").len(), 1);
    fixture.set_observed_status("x", &[("b", "Healthy")]).await;
    fixture.wait_until_idle().await;
    assert_eq!(
        fixture.binding("x")["spec"].get("gracefulEvictionTasks"),
        None
    );
    assert_eq!(fixture.scheduled_clusters("x"), json!([{"name": "b"}]));
    fixture.tasks.stop().await;
}

// proves: GRA-grace, GRA-suppress
#[tokio::test(start_paused = true)]
async fn a_task_ends_with_its_timeout() {
    let fixture = ClustersFixture::start();
    seed_evicting_binding(&fixture, "flag", json!({})).await;
    seed_evicting_binding(&fixture, "own", json!({"gracePeriodSeconds": 30})).await;
    seed_evicting_binding(&fixture, "kept", json!({"suppressDeletion": true})).await;
    let left = || ["flag", "own", "kept"].map(|name| fixture.eviction_tasks(name).len());
    sleep(Duration::from_secs(28)).await;
    assert_eq!(left(), [1, 1, 1]);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(left(), [1, 0, 1]);
    sleep(Duration::from_secs(562)).await;
    assert_eq!(left(), [1, 0, 1]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(left(), [0, 0, 1]);
    let word = json!([{"fromCluster": "a", "reason": "r", "producer": "p", "suppressDeletion": false,
                       "creationTimestamp": "2026-01-01T00:00:00Z"}]);
    let spec = json!({"spec": {"gracefulEvictionTasks": word}});
    fixture.merge_patch(&BINDINGS, ("n", "kept"), spec).await;
    fixture.wait_until_idle().await;
    assert_eq!(left(), [0, 0, 0]);
    fixture.tasks.stop().await;
}

// proves: GRA-event
#[tokio::test(start_paused = true)]
async fn the_end_of_an_eviction_is_recorded_as_an_event() {
    let fixture = ClustersFixture::with_events(ClusterControllersSettings::default());
    seed_evicting_binding(&fixture, "x", json!({})).await;
    fixture.wait_until_idle().await;
    assert_eq!(
        fixture.recorded_events("EvictWorkloadFromClusterSucceed"),
        []
    );
    let mut second = fixture.binding("x");
    let tasks = second["spec"]["gracefulEvictionTasks"]
        .as_array_mut()
        .unwrap();
    let mut kept = tasks[0].clone();
    kept["fromCluster"] = "c".into();
    kept["suppressDeletion"] = true.into();
    tasks.push(kept);
    fixture.host.seed(&BINDINGS, second);
    fixture.set_observed_status("x", &[("b", "Healthy")]).await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.eviction_tasks("x").len(), 1);
    let mut heard = fixture.recorded_events("EvictWorkloadFromClusterSucceed");
    heard.sort();
    let text = "Evict from cluster a succeed.";
    assert_eq!(
        heard,
        ["ConfigMap", "ResourceBinding"].map(|kind| (kind.to_owned(), text.to_owned()))
    );
    fixture.tasks.stop().await;
}

// proves: GRA-lock
#[tokio::test(start_paused = true)]
async fn a_conflicting_write_is_assessed_again() {
    let fixture = ClustersFixture::start();
    seed_evicting_binding(&fixture, "x", json!({})).await;
    fixture.wait_until_idle().await;
    let host = Arc::downgrade(&fixture.host);
    let raced = AtomicBool::new(false);
    // Another writer is faster once: the task must stay.
    fixture.host.on_call(move |call| {
        let writes = call.verb == "patch" && call.subresource.is_empty();
        if writes && !raced.swap(true, Ordering::SeqCst) {
            let host = host.upgrade()?;
            let mut binding = host.get_object(&BINDINGS, "n", "x")?;
            binding["spec"]["gracefulEvictionTasks"][0]["suppressDeletion"] = true.into();
            host.seed(&BINDINGS, binding);
        }
        None
    });
    let generation = &fixture.binding("x")["metadata"]["generation"];
    let healthy = json!({"status": {"schedulerObservedGeneration": generation,
        "aggregatedStatus": [{"clusterName": "b", "applied": true, "health": "Healthy"}]}});
    let mut healthy_binding = fixture.binding("x");
    healthy_binding["status"] = healthy["status"].clone();
    fixture.host.seed(&BINDINGS, healthy_binding);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fixture.eviction_tasks("x").len(), 1);
    fixture.tasks.stop().await;
}

// proves: GRA-gate
#[tokio::test(start_paused = true)]
async fn without_its_feature_gate_nothing_happens() {
    let fixture = ClustersFixture::with_options(ClusterControllersSettings {
        gates: FeatureGates::default().with_feature(KarmadaFeature::GracefulEviction, false),
        ..ClusterControllersSettings::default()
    });
    seed_evicting_binding(&fixture, "x", json!({})).await;
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(
        fixture.eviction_tasks("x")[0].get("creationTimestamp"),
        None
    );
    fixture.tasks.stop().await;
}
