//! What is evicted from tainted clusters, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machinery::Status;
use openapi::karmada::labels::APPLIED_PLACEMENT;
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTERS};
use openapi::karmada::{FeatureGates, Gate};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::failover::{Options as FailoverOptions, PurgeMode};
use crate::lab::Lab;
use crate::start::Options;

const LONG_AGO: &str = "2025-12-31T00:00:00Z";
/// When the lab's time begins.
const BEGAN: &str = "2026-01-01T00:00:00Z";

fn options(gate: bool, manager: bool, eviction: bool, rate: f64) -> Options {
    Options {
        gates: FeatureGates::default().with(Gate::Failover, gate),
        failover: FailoverOptions {
            taint_manager: manager,
            no_execute_eviction: eviction,
            eviction_rate: rate,
            ..FailoverOptions::default()
        },
        ..Options::default()
    }
}

async fn taint(lab: &Lab, cluster: &str, at: &str) {
    let taints = json!([{"key": "broken", "effect": "NoExecute", "timeAdded": at}]);
    lab.merge(
        &CLUSTERS,
        ("", cluster),
        json!({"spec": {"taints": taints}}),
    )
    .await;
}

// proves: EVI-gates, EVI-task
#[tokio::test(start_paused = true)]
async fn only_behind_its_gate_and_its_flags() {
    for (gate, manager, eviction) in [
        (true, true, true),
        (false, true, true),
        (true, false, true),
        (true, true, false),
    ] {
        let lab = Lab::with(options(gate, manager, eviction, 0.5));
        lab.told("a", "True", LONG_AGO);
        lab.place("x", &["a", "b"], &json!([]));
        lab.settle().await;
        taint(&lab, "a", BEGAN).await;
        sleep(Duration::from_secs(100)).await;
        let all = gate && manager && eviction;
        let left = if all {
            json!([{"name": "b"}])
        } else {
            json!([{"name": "a"}, {"name": "b"}])
        };
        assert_eq!(lab.placed("x"), left, "{gate} {manager} {eviction}");
        let tasks = lab.tasks("x");
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
        lab.tasks.stop().await;
    }
}

// proves: EVI-rate
#[tokio::test(start_paused = true)]
async fn evictions_follow_each_other_at_the_rate() {
    let mut options = options(true, true, true, 0.5);
    options.failover.purge_mode = PurgeMode::Directly;
    let lab = Lab::with(options);
    lab.told("a", "True", LONG_AGO);
    let names = ["v", "w", "x", "y", "z"];
    for name in names {
        lab.place(name, &["a"], &json!([]));
    }
    lab.settle().await;
    taint(&lab, "a", BEGAN).await;
    let evicted = || names.iter().filter(|n| lab.placed(n).is_null()).count();
    sleep(Duration::from_millis(500)).await;
    for count in 1..=5 {
        assert_eq!(evicted(), count);
        sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(lab.tasks("x")[0]["purgeMode"], "Directly");
    lab.tasks.stop().await;
}

// proves: EVI-rate
#[tokio::test(start_paused = true)]
async fn a_rate_of_none_halts_and_does_not_hold_up_the_end() {
    let lab = Lab::with(options(true, true, true, 0.0));
    lab.told("a", "True", LONG_AGO);
    for name in ["x", "y"] {
        lab.place(name, &["a"], &json!([]));
    }
    lab.settle().await;
    taint(&lab, "a", BEGAN).await;
    sleep(Duration::from_secs(1700)).await;
    let left = ["x", "y"].map(|n| lab.placed(n).is_array());
    assert!(left[0] != left[1], "{left:?}");
    lab.tasks.stop().await;
}

// proves: EVI-wide
#[tokio::test(start_paused = true)]
async fn bindings_of_the_cluster_are_evicted_too() {
    let lab = Lab::with(options(true, true, true, 0.5));
    lab.told("a", "True", LONG_AGO);
    taint(&lab, "a", BEGAN).await;
    lab.host.seed(&CLUSTER_BINDINGS, wide("x"));
    lab.settle().await;
    let evicted = lab.host.object(&CLUSTER_BINDINGS, "", "x").unwrap();
    assert_eq!(evicted["spec"]["clusters"], json!([{"name": "b"}]));
    assert_eq!(
        evicted["spec"]["gracefulEvictionTasks"][0]["fromCluster"],
        "a"
    );
    lab.tasks.stop().await;
}

fn wide(name: &str) -> Value {
    let metadata = json!({"name": name, "generation": 1, "annotations": {APPLIED_PLACEMENT: "{}"}});
    json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding", "metadata": metadata,
           "spec": {"resource": {"apiVersion": "v1", "kind": "Node", "name": name}, "clusters": [{"name": "a"}, {"name": "b"}]}})
}

// proves: EVI-no-placement
#[tokio::test(start_paused = true)]
async fn without_a_placement_nothing_is_evicted_until_there_is_one() {
    let lab = Lab::with(options(true, true, true, 100.0));
    lab.told("a", "True", LONG_AGO);
    taint(&lab, "a", BEGAN).await;
    lab.place("x", &["b"], &json!([]));
    let mut bare = lab.binding("x");
    bare["metadata"]["annotations"] = json!({});
    lab.host.seed(&BINDINGS, bare);
    for text in [Value::Null, "{".into()] {
        let mut lost = lab.binding("x");
        lost["metadata"]["annotations"] = match text {
            Value::Null => json!({}),
            text => json!({APPLIED_PLACEMENT: text}),
        };
        lost["spec"]["clusters"] = json!([{"name": "a"}]);
        lab.host.seed(&BINDINGS, lost);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(lab.placed("x"), json!([{"name": "a"}]));
    }
    let applied = json!({"metadata": {"annotations": {APPLIED_PLACEMENT: "{}"}}});
    lab.merge(&BINDINGS, ("n", "x"), applied).await;
    lab.settle().await;
    assert_eq!(lab.placed("x"), Value::Null);
    lab.tasks.stop().await;
}

// proves: EVI-told-failures
#[tokio::test(start_paused = true)]
async fn only_evictions_that_fail_are_told() {
    let lab = Lab::telling(options(true, true, true, 100.0));
    lab.told("a", "True", LONG_AGO);
    lab.place("x", &["a", "b"], &json!([]));
    lab.settle().await;
    let failing = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&failing);
    lab.host.on_call(move |call| {
        let refused = call.verb == "patch" && call.name == "x" && fails.load(Ordering::SeqCst);
        refused.then(|| Status::internal("not now").into())
    });
    taint(&lab, "a", BEGAN).await;
    lab.settle().await;
    let text = "Evict from cluster a failed.".to_owned();
    let heard = lab.heard("EvictWorkloadFromClusterFailed");
    for kind in ["ResourceBinding", "ConfigMap"] {
        assert!(
            heard.contains(&(kind.to_owned(), text.clone())),
            "{heard:?}"
        );
    }
    failing.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lab.placed("x"), json!([{"name": "b"}]));
    assert_eq!(lab.heard("EvictWorkloadFromClusterSucceed"), []);
    lab.tasks.stop().await;
}

/// What a series of the process says.
fn told(series: &str) -> f64 {
    let text = String::from_utf8(metrics::text(&[metrics::process()])).unwrap();
    let value = text.lines().find_map(|l| l.strip_prefix(series));
    value.map_or(0.0, |v| v.trim().parse().unwrap())
}

// proves: EVI-figures
#[tokio::test(start_paused = true)]
async fn evictions_are_counted() {
    // Other tests count too.
    let counted = || {
        let of = |what: &str, result: &str| {
            told(&format!(
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
    let lab = Lab::with(options(true, true, true, 100.0));
    lab.told("a", "True", LONG_AGO);
    lab.place("x", &["a"], &json!([]));
    lab.settle().await;
    let failed = AtomicBool::new(false);
    lab.host.on_call(move |call| {
        let refused =
            call.verb == "patch" && call.name == "x" && !failed.swap(true, Ordering::SeqCst);
        refused.then(|| Status::internal("not now").into())
    });
    taint(&lab, "a", BEGAN).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lab.placed("x"), Value::Null);
    let after = counted();
    for (after, (before, least)) in after
        .into_iter()
        .zip(before.into_iter().zip([1.0, 1.0, 2.0]))
    {
        assert!(after >= before + least, "{after} {before}");
    }
    let text = String::from_utf8(metrics::text(&[metrics::process()])).unwrap();
    assert!(text.contains("eviction_queue_depth{name=\"binding-eviction\"} "));
    lab.tasks.stop().await;
}

// proves: EVI-kinds-told
#[tokio::test(start_paused = true)]
async fn those_that_wait_are_told_by_cluster_and_kind() {
    let waiting = |kind: &str| {
        told(&format!(
            "eviction_kind_total{{member_cluster=\"counted\",resource_kind=\"{kind}\"}}"
        ))
    };
    let both = || ["ResourceBinding", "ClusterResourceBinding"].map(waiting);
    let lab = Lab::with(options(true, true, true, 0.0));
    lab.told("counted", "True", LONG_AGO);
    let minute = json!([{"key": "broken", "operator": "Exists", "tolerationSeconds": 60}]);
    for (name, tolerations) in [("x", json!([])), ("y", json!([])), ("later", minute)] {
        lab.place(name, &["counted"], &tolerations);
    }
    let ever = json!([{"operator": "Exists"}]);
    lab.place("ever", &["counted"], &ever);
    lab.settle().await;
    taint(&lab, "counted", BEGAN).await;
    lab.settle().await;
    // One was evicted at once, and one is safe.
    assert_eq!(both(), [2.0, 0.0]);
    let mut of_cluster = wide("w");
    of_cluster["spec"]["clusters"] = json!([{"name": "counted"}]);
    lab.host.seed(&CLUSTER_BINDINGS, of_cluster);
    lab.settle().await;
    assert_eq!(both(), [2.0, 1.0]);
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(both().iter().sum::<f64>(), 2.0);
    lab.tasks.stop().await;
    drop(lab);
    assert_eq!(both(), [0.0, 0.0]);
}

// proves: EVI-toleration-time, EVI-toleration-ever, EVI-applied-placement
#[tokio::test(start_paused = true)]
async fn tolerations_last_their_time() {
    let lab = Lab::with(options(true, true, true, 100.0));
    lab.told("a", "True", LONG_AGO);
    taint(&lab, "a", BEGAN).await;
    let tolerated = |seconds: Value| json!([{"key": "broken", "operator": "Exists", "tolerationSeconds": seconds}]);
    lab.place("minute", &["a"], &tolerated(60.into()));
    lab.place("ever", &["a"], &tolerated(Value::Null));
    sleep(Duration::from_secs(59)).await;
    assert_eq!(lab.placed("minute"), json!([{"name": "a"}]));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.placed("minute"), Value::Null);
    // Placed under a taint that is there; no longer tolerated.
    lab.place("late", &["a"], &json!([]));
    let applied = json!({"metadata": {"annotations": {APPLIED_PLACEMENT: "{}"}}});
    lab.settle().await;
    assert_eq!(lab.placed("late"), Value::Null);
    assert_eq!(lab.placed("ever"), json!([{"name": "a"}]));
    lab.merge(&BINDINGS, ("n", "ever"), applied).await;
    lab.settle().await;
    assert_eq!(lab.placed("ever"), Value::Null);
    lab.tasks.stop().await;
}
