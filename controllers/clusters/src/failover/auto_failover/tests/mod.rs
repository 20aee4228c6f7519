//! Tests of the automatic failover controller, from a cluster's failure to its recovery.

mod properties;

use std::time::Duration;

use karmada_api::resources::{BINDINGS, CLUSTERS, POLICIES};
use karmada_api::well_known_keys::{
    APPLIED_PLACEMENT, BEFORE_FAILOVER, FAILOVER, FAILOVER_AFTER, POLICY_NAME, POLICY_NAMESPACE,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fixture::ClustersFixture;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";
const BEGAN: &str = "2026-01-01T00:00:00Z";

/// Creates two clusters and two bindings on one of them; the policy of one has automatic
/// failover.
async fn fixture(after: &str) -> ClustersFixture {
    let fixture = ClustersFixture::start();
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    fixture.seed_unprobed_cluster("b", "True", LONG_AGO);
    for (name, annotations) in [
        ("moved", json!({FAILOVER: "auto", FAILOVER_AFTER: after})),
        ("stays", json!({})),
    ] {
        let metadata = json!({"name": name, "namespace": "n", "annotations": annotations});
        let kind = "PropagationPolicy";
        fixture.host.seed(
            &POLICIES,
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": {}}),
        );
        fixture.seed_binding(name, &["a"], &json!([]));
        let of = json!({POLICY_NAMESPACE: "n", POLICY_NAME: name});
        fixture
            .merge_patch(
                &BINDINGS,
                ("n", name),
                json!({"metadata": {"annotations": of}}),
            )
            .await;
    }
    fixture.wait_until_idle().await;
    fixture
}

fn annotation(binding: &Value, key: &str) -> Value {
    binding["metadata"]["annotations"][key].clone()
}

// proves: AFO-asked, AFO-old-copy
#[tokio::test(start_paused = true)]
async fn the_old_workload_is_removed_when_its_replacement_is_healthy() {
    let fixture = fixture("1m").await;
    fixture.seed_unprobed_cluster("a", "False", BEGAN);
    sleep(Duration::from_secs(40)).await;
    // False to Unknown is still the same outage.
    fixture.seed_unprobed_cluster("a", "Unknown", "2026-01-01T00:00:40Z");
    sleep(Duration::from_secs(18)).await;
    assert_eq!(fixture.scheduled_clusters("moved"), json!([{"name": "a"}]));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.scheduled_clusters("moved"), Value::Null);
    assert_eq!(fixture.scheduled_clusters("stays"), json!([{"name": "a"}]));
    assert_eq!(
        annotation(&fixture.binding("moved"), BEFORE_FAILOVER),
        r#"{"a":[{"name":"a"}]}"#
    );
    // Acts as the scheduler.
    let b = json!({"spec": {"clusters": [{"name": "b"}]}});
    fixture.merge_patch(&BINDINGS, ("n", "moved"), b).await;
    fixture
        .set_observed_status("moved", &[("a", "Unknown"), ("b", "Unknown")])
        .await;
    sleep(Duration::from_secs(5000)).await;
    assert_eq!(
        fixture.eviction_tasks("moved").len(),
        1,
        "the old workload has no deadline"
    );
    fixture
        .set_observed_status("moved", &[("a", "Unknown"), ("b", "Healthy")])
        .await;
    fixture.wait_until_idle().await;
    let end = fixture.binding("moved");
    assert_eq!(end["spec"].get("gracefulEvictionTasks"), None);
    assert_eq!(annotation(&end, BEFORE_FAILOVER), Value::Null);
    assert_eq!(fixture.scheduled_clusters("moved"), json!([{"name": "b"}]));
    fixture.tasks.stop().await;
}

// proves: AFO-back
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_ready_again_gets_its_workload_back() {
    let fixture = fixture("1m").await;
    fixture.seed_unprobed_cluster("a", "False", BEGAN);
    sleep(Duration::from_secs(61)).await;
    let b = json!({"spec": {"clusters": [{"name": "b"}]}});
    fixture.merge_patch(&BINDINGS, ("n", "moved"), b).await;
    fixture
        .set_observed_status("moved", &[("b", "Unknown")])
        .await;
    fixture.seed_unprobed_cluster("a", "True", "2026-01-01T00:01:02Z");
    fixture.wait_until_idle().await;
    let back = fixture.binding("moved");
    assert_eq!(fixture.scheduled_clusters("moved"), json!([{"name": "a"}]));
    assert_eq!(fixture.eviction_tasks("moved"), [] as [Value; 0]);
    assert_eq!(annotation(&back, BEFORE_FAILOVER), Value::Null);
    assert_eq!(annotation(&back, APPLIED_PLACEMENT), Value::Null);
    fixture.tasks.stop().await;
}

// proves: AFO-nowhere
#[tokio::test(start_paused = true)]
async fn nothing_is_moved_without_a_ready_cluster_or_the_annotation() {
    let fixture = fixture("1m").await;
    for cluster in ["a", "b"] {
        fixture.seed_unprobed_cluster(cluster, "Unknown", BEGAN);
    }
    sleep(Duration::from_secs(500)).await;
    assert_eq!(fixture.scheduled_clusters("moved"), json!([{"name": "a"}]));
    fixture.seed_unprobed_cluster("b", "True", "2026-01-01T00:08:00Z");
    fixture.wait_until_idle().await;
    assert_eq!(fixture.scheduled_clusters("moved"), Value::Null);
    // The annotation may be added later.
    let annotated = json!({"metadata": {"annotations": {FAILOVER: "auto"}}});
    fixture
        .merge_patch(&POLICIES, ("n", "stays"), annotated)
        .await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.scheduled_clusters("stays"), Value::Null);
    fixture.tasks.stop().await;
}

// proves: AFO-gone
#[tokio::test(start_paused = true)]
async fn the_task_is_removed_with_its_cluster() {
    let fixture = fixture("1m").await;
    fixture.seed_unprobed_cluster("a", "False", BEGAN);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(fixture.eviction_tasks("moved").len(), 1);
    fixture.host.remove(&CLUSTERS, "", "a");
    fixture.wait_until_idle().await;
    assert_eq!(fixture.eviction_tasks("moved"), [] as [Value; 0]);
    assert_eq!(fixture.scheduled_clusters("moved"), Value::Null);
    fixture.tasks.stop().await;
}
