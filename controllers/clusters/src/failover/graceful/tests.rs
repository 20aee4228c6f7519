//! How tasks end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use openapi::karmada::resources::BINDINGS;
use openapi::karmada::{FeatureGates, Gate};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::Lab;
use crate::start::Options;

async fn evicting(lab: &Lab, name: &str, more: Value) {
    lab.place(name, &["b"], &json!([]));
    let mut task =
        json!({"fromCluster": "a", "reason": "r", "producer": "p", "purgeMode": "Gracefully"});
    task.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let spec = json!({"spec": {"gracefulEvictionTasks": [task]}});
    lab.merge(&BINDINGS, ("n", name), spec).await;
}

// proves: GRA-healthy, GRA-stamp
#[tokio::test(start_paused = true)]
async fn a_task_ends_when_the_replacements_are_healthy() {
    let lab = Lab::start();
    evicting(&lab, "x", json!({})).await;
    lab.settle().await;
    assert!(lab.tasks("x")[0]["creationTimestamp"].is_string());
    lab.observe("x", &[("a", "Healthy"), ("b", "Unhealthy")])
        .await;
    lab.settle().await;
    assert_eq!(lab.tasks("x").len(), 1);
    lab.observe("x", &[("b", "Healthy")]).await;
    lab.settle().await;
    assert_eq!(lab.binding("x")["spec"].get("gracefulEvictionTasks"), None);
    assert_eq!(lab.placed("x"), json!([{"name": "b"}]));
    lab.tasks.stop().await;
}

// proves: GRA-grace, GRA-suppress
#[tokio::test(start_paused = true)]
async fn a_task_ends_with_its_time() {
    let lab = Lab::start();
    evicting(&lab, "flag", json!({})).await;
    evicting(&lab, "own", json!({"gracePeriodSeconds": 30})).await;
    evicting(&lab, "kept", json!({"suppressDeletion": true})).await;
    let left = || ["flag", "own", "kept"].map(|name| lab.tasks(name).len());
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
    lab.merge(&BINDINGS, ("n", "kept"), spec).await;
    lab.settle().await;
    assert_eq!(left(), [0, 0, 0]);
    lab.tasks.stop().await;
}

// proves: GRA-told
#[tokio::test(start_paused = true)]
async fn the_end_of_an_eviction_is_told() {
    let lab = Lab::telling(Options::default());
    evicting(&lab, "x", json!({})).await;
    lab.settle().await;
    assert_eq!(lab.heard("EvictWorkloadFromClusterSucceed"), []);
    let mut second = lab.binding("x");
    let tasks = second["spec"]["gracefulEvictionTasks"]
        .as_array_mut()
        .unwrap();
    let mut kept = tasks[0].clone();
    kept["fromCluster"] = "c".into();
    kept["suppressDeletion"] = true.into();
    tasks.push(kept);
    lab.host.seed(&BINDINGS, second);
    lab.observe("x", &[("b", "Healthy")]).await;
    lab.settle().await;
    assert_eq!(lab.tasks("x").len(), 1);
    let mut heard = lab.heard("EvictWorkloadFromClusterSucceed");
    heard.sort();
    let text = "Evict from cluster a succeed.";
    assert_eq!(
        heard,
        ["ConfigMap", "ResourceBinding"].map(|kind| (kind.to_owned(), text.to_owned()))
    );
    lab.tasks.stop().await;
}

// proves: GRA-lock
#[tokio::test(start_paused = true)]
async fn what_has_changed_meanwhile_is_looked_at_anew() {
    let lab = Lab::start();
    evicting(&lab, "x", json!({})).await;
    lab.settle().await;
    let host = Arc::downgrade(&lab.host);
    let raced = AtomicBool::new(false);
    // Somebody is faster, once: the task is to stay.
    lab.host.on_call(move |call| {
        let writes = call.verb == "patch" && call.subresource.is_empty();
        if writes && !raced.swap(true, Ordering::SeqCst) {
            let host = host.upgrade()?;
            let mut binding = host.object(&BINDINGS, "n", "x")?;
            binding["spec"]["gracefulEvictionTasks"][0]["suppressDeletion"] = true.into();
            host.seed(&BINDINGS, binding);
        }
        None
    });
    let generation = &lab.binding("x")["metadata"]["generation"];
    let healthy = json!({"status": {"schedulerObservedGeneration": generation,
        "aggregatedStatus": [{"clusterName": "b", "applied": true, "health": "Healthy"}]}});
    let mut seen = lab.binding("x");
    seen["status"] = healthy["status"].clone();
    lab.host.seed(&BINDINGS, seen);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(lab.tasks("x").len(), 1);
    lab.tasks.stop().await;
}

// proves: GRA-gate
#[tokio::test(start_paused = true)]
async fn without_its_gate_nothing_is_touched() {
    let lab = Lab::with(Options {
        gates: FeatureGates::default().with(Gate::GracefulEviction, false),
        ..Options::default()
    });
    evicting(&lab, "x", json!({})).await;
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(lab.tasks("x")[0].get("creationTimestamp"), None);
    lab.tasks.stop().await;
}
