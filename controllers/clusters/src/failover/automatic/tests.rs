//! A cluster that stays not Ready, from its fall to its return.

use std::time::Duration;

use openapi::karmada::labels::{
    APPLIED_PLACEMENT, BEFORE_FAILOVER, FAILOVER, FAILOVER_AFTER, POLICY_NAME, POLICY_NAMESPACE,
};
use openapi::karmada::resources::{BINDINGS, CLUSTERS, POLICIES};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::Lab;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";
const BEGAN: &str = "2026-01-01T00:00:00Z";

/// Two clusters and two bindings on one of them; one is of a policy that says `auto`.
async fn lab(after: &str) -> Lab {
    let lab = Lab::start();
    lab.told("a", "True", LONG_AGO);
    lab.told("b", "True", LONG_AGO);
    for (name, annotations) in [
        ("moved", json!({FAILOVER: "auto", FAILOVER_AFTER: after})),
        ("stays", json!({})),
    ] {
        let metadata = json!({"name": name, "namespace": "n", "annotations": annotations});
        let kind = "PropagationPolicy";
        lab.host.seed(
            &POLICIES,
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": {}}),
        );
        lab.place(name, &["a"], &json!([]));
        let of = json!({POLICY_NAMESPACE: "n", POLICY_NAME: name});
        lab.merge(
            &BINDINGS,
            ("n", name),
            json!({"metadata": {"annotations": of}}),
        )
        .await;
    }
    lab.settle().await;
    lab
}

fn annotation(binding: &Value, key: &str) -> Value {
    binding["metadata"]["annotations"][key].clone()
}

// proves: AFO-asked, AFO-old-copy
#[tokio::test(start_paused = true)]
async fn the_old_copy_goes_when_its_replacement_is_healthy() {
    let lab = lab("1m").await;
    lab.told("a", "False", BEGAN);
    sleep(Duration::from_secs(40)).await;
    // Still the same fall.
    lab.told("a", "Unknown", "2026-01-01T00:00:40Z");
    sleep(Duration::from_secs(18)).await;
    assert_eq!(lab.placed("moved"), json!([{"name": "a"}]));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.placed("moved"), Value::Null);
    assert_eq!(lab.placed("stays"), json!([{"name": "a"}]));
    assert_eq!(
        annotation(&lab.binding("moved"), BEFORE_FAILOVER),
        r#"{"a":[{"name":"a"}]}"#
    );
    // The scheduler's part.
    let b = json!({"spec": {"clusters": [{"name": "b"}]}});
    lab.merge(&BINDINGS, ("n", "moved"), b).await;
    lab.observe("moved", &[("a", "Unknown"), ("b", "Unknown")])
        .await;
    sleep(Duration::from_secs(5000)).await;
    assert_eq!(lab.tasks("moved").len(), 1, "no time is too long");
    lab.observe("moved", &[("a", "Unknown"), ("b", "Healthy")])
        .await;
    lab.settle().await;
    let end = lab.binding("moved");
    assert_eq!(end["spec"].get("gracefulEvictionTasks"), None);
    assert_eq!(annotation(&end, BEFORE_FAILOVER), Value::Null);
    assert_eq!(lab.placed("moved"), json!([{"name": "b"}]));
    lab.tasks.stop().await;
}

// proves: AFO-back
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_ready_again_has_its_copy_back() {
    let lab = lab("1m").await;
    lab.told("a", "False", BEGAN);
    sleep(Duration::from_secs(61)).await;
    let b = json!({"spec": {"clusters": [{"name": "b"}]}});
    lab.merge(&BINDINGS, ("n", "moved"), b).await;
    lab.observe("moved", &[("b", "Unknown")]).await;
    lab.told("a", "True", "2026-01-01T00:01:02Z");
    lab.settle().await;
    let back = lab.binding("moved");
    assert_eq!(lab.placed("moved"), json!([{"name": "a"}]));
    assert_eq!(lab.tasks("moved"), [] as [Value; 0]);
    assert_eq!(annotation(&back, BEFORE_FAILOVER), Value::Null);
    assert_eq!(annotation(&back, APPLIED_PLACEMENT), Value::Null);
    lab.tasks.stop().await;
}

// proves: AFO-nowhere
#[tokio::test(start_paused = true)]
async fn nothing_is_moved_while_there_is_no_place_or_no_wish() {
    let lab = lab("1m").await;
    for cluster in ["a", "b"] {
        lab.told(cluster, "Unknown", BEGAN);
    }
    sleep(Duration::from_secs(500)).await;
    assert_eq!(lab.placed("moved"), json!([{"name": "a"}]));
    lab.told("b", "True", "2026-01-01T00:08:00Z");
    lab.settle().await;
    assert_eq!(lab.placed("moved"), Value::Null);
    // The wish may come late.
    let wish = json!({"metadata": {"annotations": {FAILOVER: "auto"}}});
    lab.merge(&POLICIES, ("n", "stays"), wish).await;
    lab.settle().await;
    assert_eq!(lab.placed("stays"), Value::Null);
    lab.tasks.stop().await;
}

// proves: AFO-gone
#[tokio::test(start_paused = true)]
async fn with_its_cluster_goes_the_task() {
    let lab = lab("1m").await;
    lab.told("a", "False", BEGAN);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(lab.tasks("moved").len(), 1);
    lab.host.remove(&CLUSTERS, "", "a");
    lab.settle().await;
    assert_eq!(lab.tasks("moved"), [] as [Value; 0]);
    assert_eq!(lab.placed("moved"), Value::Null);
    lab.tasks.stop().await;
}
