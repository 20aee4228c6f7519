//! Tests of the NoExecute taint manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS};
use karmada_api::well_known_keys::APPLIED_PLACEMENT;
use karmada_api::{FeatureGates, KarmadaFeature};
use machinery::Status;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::failover::{FailoverOptions, NoExecuteTaintEvictionPurgeMode};
use crate::fixture::ClustersFixture;
use crate::options::ClusterControllersSettings;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";
/// When the fixture's clock starts.
const FIXTURE_START: &str = "2026-01-01T00:00:00Z";

fn options(gate: bool, manager: bool, eviction: bool, rate: f64) -> ClusterControllersSettings {
    ClusterControllersSettings {
        gates: FeatureGates::default().with_feature(KarmadaFeature::Failover, gate),
        failover: FailoverOptions {
            taint_manager: manager,
            no_execute_taint_eviction: eviction,
            resource_eviction_rate: rate,
            ..FailoverOptions::default()
        },
        ..ClusterControllersSettings::default()
    }
}

async fn taint(fixture: &ClustersFixture, cluster: &str, at: &str) {
    let taints = json!([{"key": "broken", "effect": "NoExecute", "timeAdded": at}]);
    fixture
        .merge_patch(
            &CLUSTERS,
            ("", cluster),
            json!({"spec": {"taints": taints}}),
        )
        .await;
}

// proves: EVI-gates, EVI-task
#[tokio::test(start_paused = true)]
async fn it_needs_its_feature_gate_and_flags() {
    for (gate, manager, eviction) in [
        (true, true, true),
        (false, true, true),
        (true, false, true),
        (true, true, false),
    ] {
        let fixture = ClustersFixture::with_options(options(gate, manager, eviction, 0.5));
        fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
        fixture.seed_binding("x", &["a", "b"], &json!([]));
        fixture.wait_until_idle().await;
        taint(&fixture, "a", FIXTURE_START).await;
        sleep(Duration::from_secs(100)).await;
        let all = gate && manager && eviction;
        let left = if all {
            json!([{"name": "b"}])
        } else {
            json!([{"name": "a"}, {"name": "b"}])
        };
        assert_eq!(
            fixture.scheduled_clusters("x"),
            left,
            "{gate} {manager} {eviction}"
        );
        let tasks = fixture.eviction_tasks("x");
        assert_eq!(tasks.len(), usize::from(all));
        for task in tasks {
            let mut task = task.clone();
            assert!(task["creationTimestamp"].take().is_string());
            assert_eq!(
                task,
                json!({"fromCluster": "a", "purgeMode": "Gracefully", "reason": "TaintUntolerated",
                       "producer": "TaintManager", "creationTimestamp": null})
            );
        }
        fixture.tasks.stop().await;
    }
}

// proves: EVI-rate
#[tokio::test(start_paused = true)]
async fn evictions_are_rate_limited() {
    let mut options = options(true, true, true, 0.5);
    options.failover.purge_mode = NoExecuteTaintEvictionPurgeMode::Directly;
    let fixture = ClustersFixture::with_options(options);
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    let names = ["v", "w", "x", "y", "z"];
    for name in names {
        fixture.seed_binding(name, &["a"], &json!([]));
    }
    fixture.wait_until_idle().await;
    taint(&fixture, "a", FIXTURE_START).await;
    let evicted = || {
        names
            .iter()
            .filter(|n| fixture.scheduled_clusters(n).is_null())
            .count()
    };
    sleep(Duration::from_millis(500)).await;
    for count in 1..=5 {
        assert_eq!(evicted(), count);
        sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(fixture.eviction_tasks("x")[0]["purgeMode"], "Directly");
    fixture.tasks.stop().await;
}

// proves: EVI-rate
#[tokio::test(start_paused = true)]
async fn a_zero_rate_halts_evictions_and_does_not_delay_the_shutdown() {
    let fixture = ClustersFixture::with_options(options(true, true, true, 0.0));
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    for name in ["x", "y"] {
        fixture.seed_binding(name, &["a"], &json!([]));
    }
    fixture.wait_until_idle().await;
    taint(&fixture, "a", FIXTURE_START).await;
    sleep(Duration::from_secs(1700)).await;
    let left = ["x", "y"].map(|n| fixture.scheduled_clusters(n).is_array());
    assert!(left[0] != left[1], "{left:?}");
    fixture.tasks.stop().await;
}

// proves: EVI-wide
#[tokio::test(start_paused = true)]
async fn cluster_scoped_bindings_are_evicted_too() {
    let fixture = ClustersFixture::with_options(options(true, true, true, 0.5));
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    taint(&fixture, "a", FIXTURE_START).await;
    fixture.host.seed(&CLUSTER_BINDINGS, cluster_binding("x"));
    fixture.wait_until_idle().await;
    let evicted = fixture.host.get_object(&CLUSTER_BINDINGS, "", "x").unwrap();
    assert_eq!(evicted["spec"]["clusters"], json!([{"name": "b"}]));
    assert_eq!(
        evicted["spec"]["gracefulEvictionTasks"][0]["fromCluster"],
        "a"
    );
    fixture.tasks.stop().await;
}

fn cluster_binding(name: &str) -> Value {
    let metadata = json!({"name": name, "generation": 1, "annotations": {APPLIED_PLACEMENT: "{}"}});
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding", "metadata": metadata,
           "spec": {"resource": {"apiVersion": "v1", "kind": "Node", "name": name}, "clusters": [{"name": "a"}, {"name": "b"}]}})
}

// proves: EVI-no-placement
#[tokio::test(start_paused = true)]
async fn without_a_placement_nothing_is_evicted_until_there_is_one() {
    let fixture = ClustersFixture::with_options(options(true, true, true, 100.0));
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    taint(&fixture, "a", FIXTURE_START).await;
    fixture.seed_binding("x", &["b"], &json!([]));
    let mut bare = fixture.binding("x");
    bare["metadata"]["annotations"] = json!({});
    fixture.host.seed(&BINDINGS, bare);
    for text in [Value::Null, "{".into()] {
        let mut lost = fixture.binding("x");
        lost["metadata"]["annotations"] = match text {
            Value::Null => json!({}),
            text => json!({APPLIED_PLACEMENT: text}),
        };
        lost["spec"]["clusters"] = json!([{"name": "a"}]);
        fixture.host.seed(&BINDINGS, lost);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(fixture.scheduled_clusters("x"), json!([{"name": "a"}]));
    }
    let applied = json!({"metadata": {"annotations": {APPLIED_PLACEMENT: "{}"}}});
    fixture.merge_patch(&BINDINGS, ("n", "x"), applied).await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.scheduled_clusters("x"), Value::Null);
    fixture.tasks.stop().await;
}

// proves: EVI-failure-events
#[tokio::test(start_paused = true)]
async fn only_failed_evictions_are_recorded_as_events() {
    let fixture = ClustersFixture::with_events(options(true, true, true, 100.0));
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    fixture.seed_binding("x", &["a", "b"], &json!([]));
    fixture.wait_until_idle().await;
    let failing = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&failing);
    fixture.host.on_call(move |call| {
        let is_rejected = call.verb == "patch" && call.name == "x" && fails.load(Ordering::SeqCst);
        is_rejected.then(|| Status::internal("not now").into())
    });
    taint(&fixture, "a", FIXTURE_START).await;
    fixture.wait_until_idle().await;
    let text = "Evict from cluster a failed.".to_owned();
    let heard = fixture.recorded_events("EvictWorkloadFromClusterFailed");
    for kind in ["ResourceBinding", "ConfigMap"] {
        assert!(
            heard.contains(&(kind.to_owned(), text.clone())),
            "{heard:?}"
        );
    }
    failing.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.scheduled_clusters("x"), json!([{"name": "b"}]));
    assert_eq!(
        fixture.recorded_events("EvictWorkloadFromClusterSucceed"),
        []
    );
    fixture.tasks.stop().await;
}

/// The value of a metric series of this process.
fn metric_value(series: &str) -> f64 {
    let text = String::from_utf8(flotilla_metrics::encode_text(&[
        flotilla_metrics::process_registry(),
    ]))
    .unwrap();
    let value = text.lines().find_map(|l| l.strip_prefix(series));
    value.map_or(0.0, |v| v.trim().parse().unwrap())
}

// proves: EVI-figures
#[tokio::test(start_paused = true)]
async fn evictions_are_counted() {
    // Other tests increment the same metrics.
    let counted = || {
        let of = |what: &str, result: &str| {
            metric_value(&format!(
                "eviction_processing_{what}{{name=\"binding-eviction\"{result}}}"
            ))
        };
        [
            of("total", ",result=\"success\""),
            of("total", ",result=\"error\""),
            of("latency_seconds_count", ""),
        ]
    };
    let before = counted();
    let fixture = ClustersFixture::with_options(options(true, true, true, 100.0));
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    fixture.seed_binding("x", &["a"], &json!([]));
    fixture.wait_until_idle().await;
    let failed = AtomicBool::new(false);
    fixture.host.on_call(move |call| {
        let is_rejected =
            call.verb == "patch" && call.name == "x" && !failed.swap(true, Ordering::SeqCst);
        is_rejected.then(|| Status::internal("not now").into())
    });
    taint(&fixture, "a", FIXTURE_START).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.scheduled_clusters("x"), Value::Null);
    let after = counted();
    for (after, (before, least)) in after
        .into_iter()
        .zip(before.into_iter().zip([1.0, 1.0, 2.0]))
    {
        assert!(after >= before + least, "{after} {before}");
    }
    let text = String::from_utf8(flotilla_metrics::encode_text(&[
        flotilla_metrics::process_registry(),
    ]))
    .unwrap();
    assert!(text.contains("eviction_queue_depth{name=\"binding-eviction\"} "));
    fixture.tasks.stop().await;
}

// proves: EVI-kinds-metric
#[tokio::test(start_paused = true)]
async fn pending_evictions_are_counted_by_cluster_and_kind() {
    let waiting = |kind: &str| {
        metric_value(&format!(
            "eviction_kind_total{{member_cluster=\"counted\",resource_kind=\"{kind}\"}}"
        ))
    };
    let both = || ["ResourceBinding", "ClusterResourceBinding"].map(waiting);
    let fixture = ClustersFixture::with_options(options(true, true, true, 0.0));
    fixture.seed_unprobed_cluster("counted", "True", LONG_AGO);
    let minute = json!([{"key": "broken", "operator": "Exists", "tolerationSeconds": 60}]);
    for (name, tolerations) in [("x", json!([])), ("y", json!([])), ("later", minute)] {
        fixture.seed_binding(name, &["counted"], &tolerations);
    }
    let ever = json!([{"operator": "Exists"}]);
    fixture.seed_binding("ever", &["counted"], &ever);
    fixture.wait_until_idle().await;
    taint(&fixture, "counted", FIXTURE_START).await;
    fixture.wait_until_idle().await;
    // One binding was evicted at once, and one is tolerated for ever.
    assert_eq!(both(), [2.0, 0.0]);
    let mut of_cluster = cluster_binding("w");
    of_cluster["spec"]["clusters"] = json!([{"name": "counted"}]);
    fixture.host.seed(&CLUSTER_BINDINGS, of_cluster);
    fixture.wait_until_idle().await;
    assert_eq!(both(), [2.0, 1.0]);
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(both().iter().sum::<f64>(), 2.0);
    fixture.tasks.stop().await;
    drop(fixture);
    assert_eq!(both(), [0.0, 0.0]);
}

// proves: EVI-toleration-time, EVI-toleration-ever, EVI-applied-placement
#[tokio::test(start_paused = true)]
async fn tolerations_last_their_time() {
    let fixture = ClustersFixture::with_options(options(true, true, true, 100.0));
    fixture.seed_unprobed_cluster("a", "True", LONG_AGO);
    taint(&fixture, "a", FIXTURE_START).await;
    let tolerated = |seconds: Value| json!([{"key": "broken", "operator": "Exists", "tolerationSeconds": seconds}]);
    fixture.seed_binding("minute", &["a"], &tolerated(60.into()));
    fixture.seed_binding("ever", &["a"], &tolerated(Value::Null));
    sleep(Duration::from_secs(59)).await;
    assert_eq!(fixture.scheduled_clusters("minute"), json!([{"name": "a"}]));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.scheduled_clusters("minute"), Value::Null);
    // Scheduled to a cluster that is already tainted, without a toleration.
    fixture.seed_binding("late", &["a"], &json!([]));
    let applied = json!({"metadata": {"annotations": {APPLIED_PLACEMENT: "{}"}}});
    fixture.wait_until_idle().await;
    assert_eq!(fixture.scheduled_clusters("late"), Value::Null);
    assert_eq!(fixture.scheduled_clusters("ever"), json!([{"name": "a"}]));
    fixture.merge_patch(&BINDINGS, ("n", "ever"), applied).await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.scheduled_clusters("ever"), Value::Null);
    fixture.tasks.stop().await;
}
